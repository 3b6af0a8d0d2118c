//! `graph.json`: its nodes, put in order, with the shapes of all values. Every fault is reported, with the node's name.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::attributes::{Attributes, shape};
use super::faults::{GRAPH, MAX_ELEMENTS, MAX_NODES, NodeFault, short};
use super::ops::{INSTEAD, OPS, Op};
use super::shapes::{bounded, product};
use super::{Graph, Node};
use crate::error::Problem;
use crate::folder::json::{self, Fields};

/// The version of the format that is read.
const VERSION: usize = 1;
/// Most bytes of a name.
const MAX_NAME: usize = 200;
const SHAPE: &str = "up to 8 sizes of at least 1";

/// A node as the file has it.
struct Given<'a> {
    /// `#n` for entry n of the inputs and nodes if it has none.
    name: String,
    weights: String,
    /// `None` after a fault.
    op: Option<Op>,
    reads: Vec<&'a str>,
    /// The shape that the file gives an input.
    shape: Option<Vec<usize>>,
}

impl Graph {
    /// Parses `graph.json` to a graph of shapes only; `None` if and only if a problem was added.
    pub fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Graph> {
        let before = problems.len();
        let object = json::object(GRAPH, bytes, problems)?;
        Fields::new(GRAPH, &object, problems).size("version", VERSION, VERSION);
        let inputs = list(&object, "inputs", problems);
        let nodes = list(&object, "nodes", problems);
        let outputs = list(&object, "outputs", problems);
        let (inputs, nodes, outputs) = (inputs?, nodes?, outputs?);
        let count = inputs.len() + nodes.len();
        if count.max(outputs.len()) > MAX_NODES {
            let (file, field, value) = (GRAPH.to_owned(), "nodes", count.max(outputs.len()) as f64);
            problems.push(Problem::OutOfRange { file, field, value, min: 1.0, max: MAX_NODES as f64 });
            return None;
        }
        let mut faults = Faults { problems, entry: 0 };
        let mut given: Vec<Given<'_>> = Vec::with_capacity(count);
        given.extend(inputs.iter().map(|value| faults.input(value)));
        given.extend(nodes.iter().map(|value| faults.node(value)));
        let graph = faults.graph(given, inputs.len(), outputs);
        graph.filter(|_| problems.len() == before)
    }
}

/// Where faults go, named by the node that they are of.
struct Faults<'a> {
    problems: &'a mut Vec<Problem>,
    /// The entry that is read, inputs first, for those that have no name.
    entry: usize,
}

impl Faults<'_> {
    fn add(&mut self, node: &str, faults: impl IntoIterator<Item = NodeFault>) {
        let node = short(node);
        self.problems.extend(faults.into_iter().map(|fault| Problem::Node { node: node.clone(), fault }));
    }

    /// The object of an entry, and its name.
    fn entry<'v>(&mut self, value: &'v Value) -> (Option<&'v Map<String, Value>>, String) {
        self.entry += 1;
        let object = value.as_object();
        let name = object.and_then(|object| object.get("name")).and_then(Value::as_str);
        if let Some(name) = name.filter(|name| sound(name)) {
            return (object, name.to_owned());
        }
        let name = format!("#{}", self.entry);
        self.add(&name, [NodeFault::BadName { limit: MAX_NAME }]);
        (object, name)
    }

    fn input<'v>(&mut self, value: &'v Value) -> Given<'v> {
        let (object, name) = self.entry(value);
        let shape = shape(object.and_then(|object| object.get("shape")), MAX_ELEMENTS);
        let fault = match &shape {
            None => Some(NodeFault::Field { field: "shape", expected: SHAPE }),
            Some(shape) => bounded(product(shape)).err(),
        };
        self.add(&name, fault);
        Given { weights: name.clone(), name, op: Some(Op::Input), reads: Vec::new(), shape }
    }

    fn node<'v>(&mut self, value: &'v Value) -> Given<'v> {
        const FIELDS: [&str; 5] = ["name", "op", "inputs", "weights", "attributes"];
        let (object, name) = self.entry(value);
        let none = Map::new();
        let object = object.unwrap_or(&none);
        let mut faults = Vec::new();
        let unknown = object.keys().filter(|field| !FIELDS.contains(&field.as_str()));
        faults.extend(unknown.map(|field| NodeFault::UnknownField { field: short(field) }));
        let attributes = match object.get("attributes") {
            Some(Value::Object(attributes)) => attributes,
            None | Some(Value::Null) => &none,
            Some(_) => {
                faults.push(NodeFault::Field { field: "attributes", expected: "an object" });
                &none
            }
        };
        let op = object.get("op").and_then(Value::as_str);
        let op = match (op, OPS.iter().find(|(known, _)| op == Some(known))) {
            (_, Some((_, reader))) => {
                let mut read = Attributes::new(attributes, &mut faults);
                let op = reader(&mut read);
                read.end();
                op
            }
            (Some(op), None) => {
                faults.push(unknown_op(op));
                None
            }
            (None, None) => {
                faults.push(NodeFault::Field { field: "op", expected: "the name of an operation" });
                None
            }
        };
        // `value` borrows from the file, `none` does not: names come from the file.
        let fields = value.as_object();
        let names = fields
            .and_then(|fields| fields.get("inputs"))
            .map_or(Some(Vec::new()), |list| list.as_array()?.iter().map(Value::as_str).collect());
        if names.is_none() {
            faults.push(NodeFault::Field { field: "inputs", expected: "a list of names" });
        }
        let weights = match fields.and_then(|fields| fields.get("weights")) {
            None | Some(Value::Null) => name.clone(),
            Some(Value::String(weights)) if sound(weights) => weights.clone(),
            Some(_) => {
                faults.push(NodeFault::Field { field: "weights", expected: "what the weights are named by" });
                name.clone()
            }
        };
        let reads = names.unwrap_or_default();
        // Operands of an operation with a fault are not counted: it may be another one.
        if let Some(expected) = op.as_ref().map(|op| op.operands(reads.len()))
            && expected != reads.len()
        {
            faults.push(NodeFault::Operands { found: reads.len(), expected });
        }
        self.add(&name, faults);
        Given { name, weights, op, reads, shape: None }
    }

    /// Puts the nodes in order and finds the shapes of their values. `None` if a problem was added.
    fn graph(&mut self, given: Vec<Given<'_>>, inputs: usize, outputs: &[Value]) -> Option<Graph> {
        let mut places = HashMap::new();
        for (place, node) in given.iter().enumerate() {
            match places.entry(node.name.as_str()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(place);
                }
                Entry::Occupied(_) => self.add(&node.name, [NodeFault::DuplicateName]),
            }
        }
        let mut operands: Vec<Vec<usize>> = Vec::with_capacity(given.len());
        for node in &given {
            let missing = node.reads.iter().filter(|name| !places.contains_key(*name));
            let missing: Vec<_> = missing.map(|name| NodeFault::NoSuchValue { name: short(name) }).collect();
            self.add(&node.name, missing);
            operands.push(node.reads.iter().filter_map(|name| places.get(name).copied()).collect());
        }
        let outputs = self.outputs(outputs, &places);
        let order = self.order(&given, &operands);
        self.unused(&given, &operands, outputs.iter().map(|(place, _)| *place));

        // The number of each place in the order.
        let mut numbers = vec![None; given.len()];
        order.iter().enumerate().for_each(|(number, &place)| {
            if let Some(entry) = numbers.get_mut(place) {
                *entry = Some(number);
            }
        });
        let number = |place: &usize| numbers.get(*place).copied().flatten();
        let mut given: Vec<Option<Given<'_>>> = given.into_iter().map(Some).collect();
        // `None` where a fault leaves no shape: what reads it is not reported again.
        let mut nodes: Vec<Option<Node>> = Vec::with_capacity(order.len());
        for &place in &order {
            let node = given.get_mut(place).and_then(Option::take)?;
            let reads: Option<Vec<usize>> = operands.get(place)?.iter().map(number).collect();
            let made = self.value(node, reads.unwrap_or_default(), &nodes);
            nodes.push(made);
        }
        for (place, declared) in &outputs {
            let made = number(place).and_then(|number| nodes.get(number)).and_then(Option::as_ref);
            if let (Some(node), Some(declared)) = (made, declared)
                && node.shape != *declared
            {
                let (declared, found) = (declared.clone(), node.shape.clone());
                self.add(&node.name, [NodeFault::OutputShape { declared, found }]);
            }
        }
        let inputs = (0..inputs).map(|place| number(&place)).collect::<Option<_>>()?;
        let outputs = outputs.iter().map(|(place, _)| number(place)).collect::<Option<_>>()?;
        Some(Graph { nodes: nodes.into_iter().collect::<Option<_>>()?, inputs, outputs })
    }

    /// The node with its shape, if that can be known.
    fn value(&mut self, node: Given<'_>, operands: Vec<usize>, earlier: &[Option<Node>]) -> Option<Node> {
        let op = node.op?;
        if operands.len() != op.operands(operands.len()) {
            return None;
        }
        let shapes = operands.iter().map(|&number| Some(earlier.get(number)?.as_ref()?.shape.as_slice()));
        let shapes: Vec<&[usize]> = shapes.collect::<Option<_>>()?;
        let shape = match node.shape {
            Some(shape) => Some(shape),
            None if matches!(op, Op::Input) => None,
            None => op.shape(&shapes).map_err(|fault| self.add(&node.name, [fault])).ok(),
        }?;
        Some(Node { name: node.name, weights: node.weights, op, operands, shape })
    }

    /// The places of the outputs, with the shapes that are declared.
    fn outputs(&mut self, outputs: &[Value], places: &HashMap<&str, usize>) -> Vec<(usize, Option<Vec<usize>>)> {
        let mut found = Vec::with_capacity(outputs.len());
        for value in outputs {
            let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
            let declared = value.get("shape").filter(|value| !value.is_null());
            let shape = shape(declared, MAX_ELEMENTS);
            if declared.is_some() && shape.is_none() {
                self.add(name, [NodeFault::Field { field: "shape", expected: SHAPE }]);
            }
            match places.get(name) {
                Some(&place) => found.push((place, shape)),
                None => self.add(name, [NodeFault::NoSuchValue { name: short(name) }]),
            }
        }
        found
    }

    /// An order in which each node comes after those that it reads, inputs first and then as near to the file's as that
    /// allows. Nodes of cycles are reported: they and what reads them have no place.
    fn order(&mut self, given: &[Given<'_>], operands: &[Vec<usize>]) -> Vec<usize> {
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); given.len()];
        for (place, reads) in operands.iter().enumerate() {
            for &from in reads {
                if let Some(readers) = readers.get_mut(from) {
                    readers.push(place);
                }
            }
        }
        let order = sorted(operands, &readers);
        // What comes before all its readers in some order of the rest reads a cycle and is in none.
        let (forwards, backwards) = (places(&order), places(&sorted(&readers, operands)));
        for (place, node) in given.iter().enumerate() {
            if !forwards.contains(&place) && !backwards.contains(&place) {
                self.add(&node.name, [NodeFault::Cycle]);
            }
        }
        order
    }

    fn unused(&mut self, given: &[Given<'_>], operands: &[Vec<usize>], outputs: impl Iterator<Item = usize>) {
        let mut used = vec![false; given.len()];
        for place in operands.iter().flatten().copied().chain(outputs) {
            if let Some(used) = used.get_mut(place) {
                *used = true;
            }
        }
        for (node, _) in given.iter().zip(used).filter(|(_, used)| !used) {
            self.add(&node.name, [NodeFault::Unused]);
        }
    }
}

/// The places that can be put in an order in which each comes after those that it waits for, the least first of those
/// that are ready (Kahn 1962). `waiting` is the other side of `waits`.
fn sorted(waits: &[Vec<usize>], waiting: &[Vec<usize>]) -> Vec<usize> {
    let mut left: Vec<usize> = waits.iter().map(Vec::len).collect();
    let mut ready: BTreeSet<usize> = (0..left.len()).filter(|place| left.get(*place) == Some(&0)).collect();
    let mut order = Vec::with_capacity(left.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for &next in waiting.get(place).into_iter().flatten() {
            if let Some(left) = left.get_mut(next) {
                *left -= 1;
                if *left == 0 {
                    ready.insert(next);
                }
            }
        }
    }
    order
}

fn places(order: &[usize]) -> BTreeSet<usize> {
    order.iter().copied().collect()
}

/// A list of the file that is not empty.
fn list<'v>(
    object: &'v Map<String, Value>,
    field: &'static str,
    problems: &mut Vec<Problem>,
) -> Option<&'v Vec<Value>> {
    let list = object.get(field).and_then(Value::as_array).filter(|list| !list.is_empty());
    if list.is_none() {
        let expected = "a list with at least one entry".into();
        problems.push(Problem::WrongType { file: GRAPH.to_owned(), field, expected });
    }
    list
}

fn sound(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn unknown_op(op: &str) -> NodeFault {
    let instead = INSTEAD.iter().find(|(name, _)| *name == op).map_or("", |(_, instead)| instead);
    let known: Vec<&str> = OPS.iter().map(|(name, _)| *name).collect();
    NodeFault::UnknownOp { op: short(op), instead, known: known.join(", ") }
}
