//! Errors of the libraries as exceptions of `hushed._errors`.

use hushed_mpc::plan::PlanError;
use hushed_serve::{Category, ServeError};
use pyo3::prelude::*;

/// The exception for this exit code, with its stable name (docs/errors.md).
pub fn exception(py: Python<'_>, exit_code: u8, name: &str, message: &str) -> PyErr {
    let made =
        py.import("hushed._errors").and_then(|module| module.call_method1("of_exit_code", (exit_code, name, message)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An error of a client or a server.
pub fn serve(py: Python<'_>, error: &ServeError) -> PyErr {
    let code = error.category().exit_code();
    exception(py, code, error.name(), &error.to_string())
}

/// A folder without a plan, or lengths that the plan does not accept.
pub fn plan(py: Python<'_>, error: PlanError) -> PyErr {
    match error {
        PlanError::Model(error) => serve(py, &error.into()),
        PlanError::Run(error) => serve(py, &error.into()),
        PlanError::Nothing => usage(py, "usage", &error.to_string()),
        lengths => exception(py, Category::Input.exit_code(), "tokens", &lengths.to_string()),
    }
}

/// Wrong use of a function.
pub fn usage(py: Python<'_>, name: &str, message: &str) -> PyErr {
    exception(py, Category::Usage.exit_code(), name, message)
}

/// A defect of this package.
pub fn defect(py: Python<'_>, message: &str) -> PyErr {
    exception(py, Category::Defect.exit_code(), "internal", message)
}
