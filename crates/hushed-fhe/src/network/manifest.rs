//! Manifests of models and of networks, told apart when they are read.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_ckks::CkksParams;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::plan::NetworkPlan;
use crate::plan::public_plan::{FhePlan, Manifest, PlanFileError, from_bytes};

/// The manifest of a model or of a network.
pub enum AnyManifest {
    /// Of a model of text.
    Model(Box<FhePlan>),
    /// Of a network.
    Network(Box<NetworkPlan>),
}

/// What tells the two apart.
#[derive(Deserialize)]
struct Peek {
    network: Option<IgnoredAny>,
}

impl AnyManifest {
    /// Reads a manifest of either kind, and checks all of it.
    ///
    /// # Errors
    /// As [`FhePlan::from_json`].
    pub fn from_json(bytes: &[u8]) -> Result<(AnyManifest, Arc<CkksParams>), PlanFileError> {
        let peek: Peek = from_bytes(bytes)?;
        Ok(match peek.network {
            Some(_) => {
                let (plan, params) = NetworkPlan::from_json(bytes)?;
                (AnyManifest::Network(Box::new(plan)), params)
            }
            None => {
                let (plan, params) = FhePlan::from_json(bytes)?;
                (AnyManifest::Model(Box::new(plan)), params)
            }
        })
    }

    /// What both kinds have.
    #[must_use]
    pub fn plan(&self) -> &dyn Manifest {
        match self {
            AnyManifest::Model(plan) => plan.as_ref(),
            AnyManifest::Network(plan) => plan.as_ref(),
        }
    }
}
