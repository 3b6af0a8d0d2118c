//! Bodies of the fuzz targets, plain functions of bytes (feature `testing`). For no input may they panic, hang or
//! allocate without bound; a parser fails if and only if it reports a problem.

use crate::arch::Task;
use crate::arch::config::NetworkConfig;
use crate::calibrate::Calibration;
use crate::folder::config::ends;
use crate::folder::shards::Index;
use crate::folder::weights::Weights;
use crate::folder::{declared, pooling};
use crate::graph::{Graph, MAX_ELEMENTS};
use crate::tokens::{Tokenizer, TooLong};

/// `config.json`.
pub fn config(bytes: &[u8]) {
    let mut problems = Vec::new();
    let config = NetworkConfig::parse(bytes, &mut problems);
    assert_eq!(config.is_none(), !problems.is_empty());
    if let Some(config) = config {
        let columns = config.split().query_columns();
        assert!(config.head_width.is_some() || columns == config.width);
        let sound = |name: &String| name.len() <= 200 && !name.chars().any(char::is_control);
        assert!(config.labels.iter().flatten().all(sound));
    }
    problems.iter().for_each(|p| assert!(p.to_string().len() < 500));
}

/// `graph.json`. The nodes are in order, and their shapes are those of their operations.
pub fn graph(bytes: &[u8]) {
    let mut problems = Vec::new();
    let graph = Graph::parse(bytes, &mut problems);
    assert_eq!(graph.is_none(), !problems.is_empty());
    problems.iter().for_each(|p| assert!(p.to_string().len() < 1000));
    if let Some(graph) = graph {
        let mut nodes = graph.nodes().iter().enumerate();
        assert!(nodes.all(|(number, node)| node.operands.iter().all(|&from| from < number)));
        assert!(graph.nodes().iter().all(|node| node.shape.iter().product::<usize>() <= MAX_ELEMENTS));
        assert!(graph.outputs().len() > 0 && graph.parameters() < usize::MAX);
    }
}

/// A whole `model.safetensors`, with reads of what its header declares, or the index of several files.
pub fn safetensors_header(bytes: &[u8]) {
    let mut problems = Vec::new();
    match Index::parse(bytes, &mut problems) {
        Some(index) => assert!(index.files().iter().all(|file| !file.contains(['/', '\\']))),
        None => assert!(!problems.is_empty()),
    }
    if let Ok(weights) = Weights::new(bytes) {
        for name in ["a", "b", "embeddings.LayerNorm.weight"] {
            for shape in [&[2][..], &[2, 2], &[]] {
                if let Ok(values) = weights.read(name, shape) {
                    assert_eq!(values.len(), shape.iter().product::<usize>());
                }
            }
        }
    }
}

/// `tokenizer.json`, and a text tokenized by it.
pub fn tokenizer(bytes: &[u8]) {
    // The tiny BERT's vocabulary, and one that holds all bytes.
    for (vocabulary, task) in [(200, Task::Embed), (700, Task::Embed), (700, Task::Generate)] {
        let mut problems = Vec::new();
        let tokenizer = Tokenizer::parse(bytes, vocabulary, Some(0), task, &mut problems);
        assert_eq!(tokenizer.is_none(), !problems.is_empty());
        if let Some(mut decoder) = tokenizer.as_ref().and_then(Tokenizer::decoder) {
            let text: String = (0..vocabulary as u32 + 9).map(|id| decoder.push(id)).collect();
            assert!(text.len() <= bytes.len() * 3 && decoder.finish().len() <= 3);
        }
        if let Some(tokenizer) = tokenizer
            && let Ok(ids) = tokenizer.encode("Hello, [SEP] wörld! 漢字 \u{0} 42", 12, TooLong::Cut)
        {
            assert!(ids.ids().len() <= 12);
            assert!(ids.ids().iter().all(|&id| (id as usize) < vocabulary));
        }
    }
}

/// The small files that describe pooling and what follows, and the declaration of the activation.
pub fn ending(bytes: &[u8]) {
    let mut problems = Vec::new();
    if pooling::modules(bytes, &mut problems).is_none() {
        assert!(!problems.is_empty());
    }
    problems.clear();
    if pooling::pooling(bytes, Some(32), &mut problems).is_none() {
        assert!(!problems.is_empty());
    }
    problems.clear();
    if pooling::sentence(bytes, false, &mut problems).is_none() {
        assert!(!problems.is_empty());
    }
    let cross = pooling::is_of_cross_encoder(bytes);
    pooling::published(bytes, cross, &mut problems);
    ends::of_generation(bytes, Some(700), &mut problems);
    problems.clear();
    match declared::parse(bytes, &mut problems) {
        Some(d) => {
            let t = d.activation;
            assert!(problems.is_empty() && t.reach.is_finite() && t.error > 0.0);
        }
        None => assert!(!problems.is_empty()),
    }
}

/// `calibration.json`: what is parsed can be written and parsed again to the same value.
pub fn calibration(bytes: &[u8]) {
    if let Ok(calibration) = Calibration::parse(bytes)
        && let Ok(again) = calibration.to_json()
    {
        assert_eq!(Calibration::parse(&again).ok(), Some(calibration));
    }
}
