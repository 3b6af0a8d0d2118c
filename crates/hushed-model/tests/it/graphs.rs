//! Networks as graphs: the committed ones answer as torch does (scripts/tiny_graphs.py), and what is wrong with one is
//! said whole.

use std::fs;
use std::path::{Path, PathBuf};

use hushed_model::graph::{GRAPH, InputError, MAX_NODES};
use hushed_model::testing::mutations;
use hushed_model::{Graph, Model, NodeFault, Problem, Tensor, fuzz};
use serde_json::{Value, json};
use tempfile::TempDir;

const NAMES: [&str; 5] = ["mlp", "cnn", "calls", "joins", "norms"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/graphs").join(name)
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A copy of a committed folder with a changed graph.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut graph = json_of(&golden(name).join(GRAPH));
    change(&mut graph);
    fs::write(folder.path().join(GRAPH), graph.to_string()).unwrap();
    fs::copy(golden(name).join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    folder
}

/// The problems of a folder, as text.
fn problems(folder: &Path) -> Vec<String> {
    let error = Graph::load(folder).err().expect("a refused folder");
    error.problems.iter().map(Problem::to_string).collect()
}

fn flat(value: &Value, to: &mut Vec<f64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| flat(value, to)),
        number => to.push(number.as_f64().unwrap()),
    }
}

#[test]
fn answers_are_those_of_torch() {
    for name in NAMES {
        let graph = Graph::load(&golden(name)).unwrap();
        let cases = json_of(&golden(name).join("expected.json"));
        for case in cases.as_array().unwrap() {
            let names = graph.inputs().map(|node| node.name.clone());
            let line: Value =
                names.zip(case["inputs"].as_array().unwrap().clone()).collect::<serde_json::Map<_, _>>().into();
            let inputs = graph.read_inputs(line.to_string().as_bytes()).unwrap();
            let answers = graph.run(&inputs[0]).unwrap();
            for (answer, expected) in answers.iter().zip(case["outputs"].as_array().unwrap()) {
                let mut numbers = Vec::new();
                flat(expected, &mut numbers);
                assert_eq!(answer.data().len(), numbers.len(), "{name}");
                for (found, expected) in answer.data().iter().zip(&numbers) {
                    assert!((found - expected).abs() < 1e-6, "{name}: {found} and {expected}");
                }
            }
        }
    }
}

/// Values from numpy.interp and by hand.
#[test]
fn functions_by_points_and_squares() {
    let node =
        |op: &str, attributes: Value| json!({ "name": "f", "op": op, "inputs": ["x"], "attributes": attributes });
    let at = |node: Value, x: f64| {
        let graph = json!({ "version": 1, "inputs": [{"name": "x", "shape": [1]}], "nodes": [node], "outputs": [{"name": "f"}] });
        let mut problems = Vec::new();
        let graph = Graph::parse(graph.to_string().as_bytes(), &mut problems);
        let graph = graph.unwrap_or_else(|| panic!("{problems:?}"));
        graph.run(&[Tensor::new(vec![1], vec![x]).unwrap()]).unwrap()[0].data()[0]
    };
    let table = json!({ "xp": [-1.0, 0.0, 2.0], "fp": [3.0, 1.0, 5.0], "degree": 7 });
    for (x, y) in [(-9.0, 3.0), (-1.0, 3.0), (-0.25, 1.5), (0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (9.0, 5.0)] {
        assert!((at(node("Interp", table.clone()), x) - y).abs() < 1e-12, "{x}");
    }
    assert_eq!(at(node("Square", json!({})), -3.0), 9.0);
    assert_eq!(at(node("Add", json!({ "value": 2.5 })), 1.0), 3.5);
    assert_eq!(at(node("Mul", json!({ "value": -2 })), 1.5), -3.0);
    assert!((at(node("Sigmoid", json!({})), 1.0) - 0.731_058_578_630_004_9).abs() < 1e-15);
    assert!((at(node("Exp", json!({ "degree": 15 })), -0.5) - 0.606_530_659_712_633_4).abs() < 1e-15);
}

/// Nodes in any order.
#[test]
fn the_order_of_the_file_does_not_matter() {
    let reversed = changed("calls", |graph| graph["nodes"].as_array_mut().unwrap().reverse());
    let inputs = |graph: &Graph| {
        let numbers = |shape: &Vec<usize>| (0..shape.iter().product()).map(|i| (i as f64).sin()).collect();
        graph.inputs().map(|node| Tensor::new(node.shape.clone(), numbers(&node.shape)).unwrap()).collect::<Vec<_>>()
    };
    let answers = [golden("calls"), reversed.path().to_owned()].map(|folder| {
        let graph = Graph::load(&folder).unwrap();
        let answers = graph.run(&inputs(&graph)).unwrap();
        answers.iter().map(|answer| answer.data().to_vec()).collect::<Vec<_>>()
    });
    assert_eq!(answers[0], answers[1]);
}

/// Each fault by the name of its node, all at once.
#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let folder = changed("mlp", |graph| {
        let nodes = graph["nodes"].as_array_mut().unwrap();
        nodes[0]["attributes"]["in_features"] = json!(7);
        nodes[1]["attributes"]["momentum"] = json!(0.1);
        nodes.push(json!({ "name": "pool", "op": "MaxPool2d", "inputs": ["x"] }));
        nodes.push(json!({ "name": "lost", "op": "Square", "inputs": ["nowhere"] }));
        nodes.push(json!({ "name": "a", "op": "Add", "inputs": ["b", "x"] }));
        nodes.push(json!({ "name": "b", "op": "Square", "inputs": ["a"] }));
        nodes.push(json!({ "name": "x", "op": "Square", "inputs": ["x"] }));
        nodes.push(json!({ "name": "two", "op": "Mul", "inputs": ["x"], "more": 1 }));
        nodes.push(json!({ "op": "Square", "inputs": 5 }));
    });
    let all = problems(folder.path()).join("\n");
    for words in [
        "node first.0: it reads a value of shape [6], and takes […, 7]",
        "node first.1: the attribute `momentum` is unknown",
        "node pool: the operation MaxPool2d is unknown: use AvgPool2d; known: Linear, Conv2d",
        "node pool: nothing reads it",
        "node lost: it reads \"nowhere\"",
        "node a: it is part of a cycle",
        "node b: it is part of a cycle",
        "node x: two nodes or inputs have this name",
        "node two: it reads 1 values, and the operation takes 2",
        "node two: the field `more` is unknown",
        "node #15: its name is empty",
        "node #15: `inputs` should be a list of names",
    ] {
        assert!(all.contains(words), "{words} is missing in\n{all}");
    }
    // What reads a cycle or a node with a fault is not reported for it.
    assert_eq!(all.matches("part of a cycle").count(), 2, "{all}");
    assert_eq!(all.matches("node last").count(), 0, "{all}");
}

#[test]
fn attributes_and_shapes_are_checked() {
    let refused = |name: &str, at: usize, attribute: &str, value: Value| {
        let folder = changed(name, |graph| graph["nodes"][at]["attributes"][attribute] = value);
        problems(folder.path()).join("\n")
    };
    for (at, attribute, value, words) in [
        (0, "stride", json!([0, 1]), "`stride` should be one or two whole numbers from 1"),
        (0, "kernel_size", json!(9), "[2, rows, columns] with rows and columns for a window"),
        (0, "groups", json!(3), "a divisor of in_channels and out_channels"),
        (0, "padding_mode", json!("reflect"), "`padding_mode` should be zeros"),
        (0, "in_channels", json!(3), "[3, rows, columns]"),
        (0, "out_channels", json!(1_000_000_000), "`out_channels` should be a whole number from 1 to"),
        (1, "eps", json!(-1.0), "`eps` should be a number from"),
        (5, "ceil_mode", json!(true), "`ceil_mode` should be false"),
        (5, "padding", json!(2), "at most half of kernel_size"),
    ] {
        let found = refused("cnn", at, attribute, value);
        assert!(found.contains(words), "{words} is missing in\n{found}");
    }
    for (attribute, value, words) in [
        ("end_dim", 9, "`end_dim` should be a dimension other than 0, the batch"),
        ("end_dim", 4, "and takes as many numbers as its own shape"),
        ("start_dim", 0, "`start_dim` should be a dimension other than 0, the batch"),
    ] {
        let flat =
            json!({ "name": "reshape", "op": "Flatten", "inputs": ["features.8"], "attributes": { attribute: value } });
        let folder = changed("cnn", |graph| graph["nodes"][9] = flat);
        let found = problems(folder.path()).join("\n");
        assert!(found.contains(words), "{words} is missing in\n{found}");
    }
    let flat = json!({ "name": "reshape", "op": "Flatten", "inputs": ["features.8"] });
    let folder = changed("cnn", |graph| graph["nodes"][9] = flat);
    assert!(Graph::load(folder.path()).is_ok());
    for (op, attributes, words) in [
        ("Mean", json!({}), "`dim` should be a dimension other than 0, the batch, or a list of such"),
        ("Mean", json!({ "dim": [1, 0] }), "`dim` should be"),
        ("Mean", json!({ "dim": [1, -3] }), "one with each of these dimensions, once"),
        ("Mean", json!({ "dim": 4 }), "one with each of these dimensions, once"),
        ("LayerNorm", json!({ "normalized_shape": [] }), "`normalized_shape` should be at least one size"),
        (
            "LayerNorm",
            json!({ "normalized_shape": [6, 7] }),
            "it reads a value of shape [2, 7, 6], and takes […, 6, 7]",
        ),
        ("RMSNorm", json!({ "normalized_shape": [6], "bias": true }), "the attribute `bias` is unknown"),
        ("RMSNorm", json!({ "normalized_shape": [6] }), "the tensor more.weight is missing"),
        ("Concat", json!({ "dim": [1, 2] }), "`dim` should be one dimension"),
        ("Concat", json!({ "dim": 2 }), "[2, 7, 6] and [6, 4, 3], which have to be equal but in its dimension"),
    ] {
        let inputs = if op == "Concat" { json!(["x", "features.3"]) } else { json!(["x"]) };
        let node = json!({ "name": "more", "op": op, "inputs": inputs, "attributes": attributes });
        let folder = changed("cnn", |graph| {
            graph["nodes"].as_array_mut().unwrap().push(node);
            graph["outputs"].as_array_mut().unwrap().push(json!({ "name": "more" }));
        });
        let found = problems(folder.path()).join("\n");
        assert!(found.contains(words), "{words} is missing in\n{found}");
    }
    let declared = changed("cnn", |graph| graph["outputs"][0]["shape"] = json!([6]));
    assert!(problems(declared.path()).join("\n").contains("declared with the shape [6], and has the shape [5]"));
    let nodes = MAX_NODES;
    let many = changed("mlp", |graph| {
        let more = (0..nodes).map(|i| json!({ "name": format!("n{i}"), "op": "Square", "inputs": ["x"] }));
        graph["nodes"].as_array_mut().unwrap().extend(more);
    });
    let [only] = &problems(many.path())[..] else { panic!("one problem") };
    assert!(only.contains("`nodes` is") && only.contains("4096"), "{only}");
    let deep = TempDir::new().unwrap();
    fs::write(deep.path().join(GRAPH), format!("{{\"nodes\":{}", "[".repeat(100_000))).unwrap();
    assert!(problems(deep.path()).iter().any(|p| p.contains("is not the expected JSON")));
}

/// Weights that are missing, left over, of another shape, or not finite.
#[test]
fn weights_are_those_of_the_nodes() {
    let folder = changed("mlp", |graph| {
        let nodes = graph["nodes"].as_array_mut().unwrap();
        nodes[6]["weights"] = json!("other");
        nodes[3]["attributes"]["bias"] = json!(true);
    });
    let all = problems(folder.path()).join("\n");
    for words in [
        "the tensor other.weight is missing",
        "the tensor other.bias is missing",
        "the tensor second.bias is missing",
        "last.weight belongs to no node",
        "last.bias belongs to no node",
    ] {
        assert!(all.contains(words), "{words} is missing in\n{all}");
    }
    let path = folder.path().join("model.safetensors");
    let good = changed("mlp", |_| ());
    let mut bytes = fs::read(golden("mlp").join("model.safetensors")).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    fs::copy(&path, good.path().join("model.safetensors")).unwrap();
    let [only] = &problems(good.path())[..] else { panic!("one problem") };
    assert!(only.contains("contains an infinity or NaN"), "{only}");
}

/// A folder of a graph is named as one where a transformer is expected.
#[test]
fn a_graph_is_no_transformer() {
    let error = Model::load(&golden("mlp")).err().unwrap().to_string();
    assert!(error.contains("a network as a graph"), "{error}");
    assert!(Graph::is_in(&golden("mlp")));
    let faults = [NodeFault::Cycle, NodeFault::Unused].map(|fault| fault.to_string());
    assert!(faults.iter().all(|words| !words.is_empty()));
}

fn npy(kind: &str, order: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), numbers].concat()
}

#[test]
fn inputs_are_json_lines_or_arrays_of_numpy() {
    let graph = Graph::load(&golden("mlp")).unwrap();
    let read = |bytes: &[u8]| {
        let inputs = graph.read_inputs(bytes)?;
        Ok(inputs.iter().map(|input| input[0].data().to_vec()).collect::<Vec<_>>())
    };
    let (one, two) = (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0.5; 6]);
    let lines = b"[1, 2, 3, 4, 5, 6]\r\n\n{\"x\": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]}\n";
    assert_eq!(read(lines).unwrap(), [one.clone(), two.clone()]);
    let f4: Vec<u8> = one.iter().chain(&two).flat_map(|&v| (v as f32).to_le_bytes()).collect();
    let f8: Vec<u8> = one.iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
    assert_eq!(read(&npy("<f4", "False", "(2, 6)", &f4)).unwrap(), [one.clone(), two]);
    assert_eq!(read(&npy("<f8", "False", "(6,)", &f8)).unwrap(), std::slice::from_ref(&one));
    // What is written is read, and its numbers begin where numpy expects them.
    let written = hushed_model::graph::to_npy(&[1, 6], &one);
    assert_eq!((read(&written).unwrap(), (written.len() - 48) % 64), (vec![one], 0));
    let refused = |bytes: &[u8]| read(bytes).err().unwrap();
    let numbers = |line| InputError::Numbers { line, input: "x".to_owned(), count: 6, shape: vec![6] };
    assert_eq!(refused(b"[1, 2, 3, 4, 5, 6]\n[1, 2]"), numbers(2));
    assert_eq!(refused(b"[1, 2, 3, 4, 5, \"6\"]"), numbers(1));
    assert!(matches!(refused(b"{\"y\": [1]}"), InputError::Line { line: 1, .. }));
    assert!(matches!(refused(b"x"), InputError::NotJson { line: 1, .. }));
    assert_eq!(refused(b"\n"), InputError::Empty);
    assert!(matches!(refused(&npy("<i8", "False", "(6,)", &f8)), InputError::Npy { .. }));
    assert!(matches!(refused(&npy("<f8", "True", "(6,)", &f8)), InputError::Npy { .. }));
    assert!(matches!(refused(&npy("<f8", "False", "(6,)", &f8[1..])), InputError::Npy { .. }));
    assert!(matches!(refused(&npy("<f8", "False", "(3, 2)", &f8)), InputError::NpyShape { .. }));
    let nan = f64::NAN.to_le_bytes().repeat(6);
    assert_eq!(refused(&npy("<f8", "False", "(6,)", &nan)), InputError::NotFinite);
    let calls = Graph::load(&golden("calls")).unwrap();
    let several = calls.read_inputs(&npy("<f8", "False", "(6,)", &f8)).err();
    assert_eq!(several, Some(InputError::Several { inputs: 2 }));
    // Whatever is cut off, nothing panics.
    let whole = npy("<f8", "False", "(6,)", &f8);
    (0..whole.len()).for_each(|end| assert!(read(&whole[..end]).is_err()));
}

#[test]
fn graphs_survive_mutations() {
    let corpus = NAMES.map(|name| fs::read(golden(name).join(GRAPH)).unwrap());
    mutations(&corpus, 10_000, 11, fuzz::graph);
}
