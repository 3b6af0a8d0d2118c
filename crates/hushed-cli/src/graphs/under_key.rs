//! Networks under encryption: what each verb does with the folder of one, or with its manifest.

use std::fs;
use std::path::Path;

use hushed_fhe::network::{Circuit, NetworkChoices, Rehearsal, network_sha256};
use hushed_fhe::plan::public_plan::{Manifest as _, hex};
use hushed_fhe::plan::{pace, reference};
use hushed_model::graph::{read_inputs, to_npy};
use hushed_model::{Graph, ModelError, Port, Tensor, counted};
use hushed_serve::fhe::{
    KeyOrder, RunOptions, decrypt_outputs, encrypt_inputs, network_choices, network_client, run_network,
};
use serde_json::json;

use super::answers::shown;
use crate::error::CliError;
use crate::machine::peak_memory;
use crate::output::{Output, gib};
use crate::running::Running;

/// Logits that are nearer than this may change places.
const MARGIN: f64 = 1e-2;

/// A folder with its calibration.
pub struct Subject<'a> {
    pub dir: &'a Path,
    pub calibration: &'a Path,
    /// The parameter set; the cheapest that can run the network if none is given.
    pub parameters: Option<&'a str>,
}

impl Subject<'_> {
    /// The circuit for requests of so many inputs.
    fn circuit(&self, graph: &Graph, inputs: usize) -> Result<Circuit, CliError> {
        let choices = network_choices(self.dir, self.calibration, None)?;
        Ok(match self.parameters {
            Some(name) => Circuit::new(graph, &choices, inputs, name)?,
            None => Circuit::smallest(graph, &choices, inputs)?,
        })
    }
}

fn load(dir: &Path) -> Result<Graph, CliError> {
    Ok(Graph::load(dir).map_err(ModelError::from)?)
}

/// Whether a network can run under a key: tried with one input of zeros, as whether it can does not depend on samples.
pub fn possible(graph: &Graph) -> Result<(), CliError> {
    let zeros = graph.inputs().map(|node| {
        let size = node.shape.iter().product();
        Tensor::new(node.shape.clone(), vec![0.0; size])
    });
    let zeros: Vec<Tensor> = zeros.flatten().collect();
    let choices = NetworkChoices::measure(graph, String::new(), &[zeros])?;
    Circuit::smallest(graph, &choices, 1).map(drop).map_err(CliError::from)
}

/// Measures samples; returns the bytes of the calibration.
pub fn calibrate(dir: &Path, bytes: &[u8], out: &Output) -> Result<Vec<u8>, CliError> {
    let graph = load(dir)?;
    let samples = graph.read_inputs(bytes)?;
    let read = |source| CliError::ReadInput { path: dir.to_owned(), source };
    let choices = NetworkChoices::measure(&graph, network_sha256(dir).map_err(read)?, &samples)?;
    for (node, [low, high]) in &choices.intervals {
        let object = json!({ "node": node, "from": low, "to": high });
        out.result(object, || format!("{node:<34} argument {low:.3} … {high:.3}"))?;
    }
    let NetworkChoices { samples, input, answer, .. } = &choices;
    out.summary(
        json!({ "inputs": samples, "largest_input": input, "largest_answer": answer }),
        &format!("{}: numbers up to {input:.3}, answers up to {answer:.3}", counted(*samples, "input")),
    )?;
    Ok(choices.to_json()?)
}

/// Prints what a run costs, how exact it is, and who sees what.
pub fn plan(subject: &Subject<'_>, inputs: usize, out: &Output) -> Result<Circuit, CliError> {
    let circuit = subject.circuit(&load(subject.dir)?, inputs)?;
    let (plan, params) = (circuit.plan(), circuit.params());
    let order = KeyOrder::of(plan, params, Path::new("evaluation.keys"))?;
    let request = hushed_fhe::files::exchange::request_bytes(plan, params).map_err(hushed_fhe::FheError::from)?;
    let reply = hushed_fhe::files::exchange::reply_bytes(plan, params);
    let seconds = circuit.seconds(&reference(1).at_pace(pace(params)?));
    let (levels, refreshes, bits) = (circuit.levels(), circuit.refreshes(), plan.reply.bits(params));
    let object = json!({ "plan": {
        "protocol": "fhe", "hash": hex(&plan.hash()), "parameters": plan.parameters, "levels": levels,
        "refreshes": refreshes, "period": plan.period, "slots": params.slots(), "inputs": inputs,
        "input_bound": plan.input_bound, "keys": order.keys, "key_bytes": order.bytes, "request_bytes": request, "reply_bytes": reply,
        "seconds_per_input": seconds, "error": plan.error, "reply_bits": bits, "exposures": plan.exposures,
    } });
    out.result(object, || {
        let mut text = format!(
            "parameters         {}\n\
             depth              {}, with {} refreshed\n\
             packing            values of up to {} numbers in {} slots\n\
             inputs             {} a request, with numbers up to {}\n\
             keys               {}, {:.1} MiB\n\
             request, reply     {:.1} KiB, {:.1} KiB\n\
             time               {seconds:.2} s an input on one core (an estimate)\n\
             error              {:.1e} at most, by simulated runs of samples; answers are kept to {bits} bits after the \
             point",
            plan.parameters,
            counted(levels, "level"),
            counted(refreshes, "vector"),
            plan.period,
            params.slots(),
            inputs,
            plan.input_bound,
            counted(order.keys, "key"),
            1024.0 * gib(order.bytes),
            request as f64 / 1024.0,
            reply as f64 / 1024.0,
            plan.error,
        );
        for exposure in &plan.exposures {
            text += &format!("\n{exposure}");
        }
        text
    })?;
    Ok(circuit)
}

/// Encrypts the inputs of a file.
pub fn encrypt(manifest: &Path, keys: &Path, bytes: &[u8], to: &Path, out: &Output) -> Result<(), CliError> {
    let client = network_client(manifest)?;
    let port = client.plan().input.clone();
    let inputs: Vec<Tensor> = read_inputs(&[port], bytes)?.into_iter().flatten().collect();
    let sent = encrypt_inputs(manifest, keys, &inputs, to)?;
    out.result(json!({ "request": sent.id, "bytes": sent.bytes, "inputs": inputs.len() }), || {
        let kib = sent.bytes as f64 / 1024.0;
        format!("request {} of {} in {} ({kib:.1} KiB)", sent.id, counted(inputs.len(), "input"), to.display())
    })
}

/// The server's part of a run.
pub fn run(options: &RunOptions, out: &Output) -> Result<(), CliError> {
    let bar = Running::new(out, "checking");
    let report = run_network(options, &|event| bar.told(&event))?;
    bar.end();
    let object = json!({
        "request": report.request, "bytes": report.bytes, "seconds": report.seconds, "all_seconds": report.all_seconds,
        "done_before": report.done_before, "peak_memory": peak_memory(),
    });
    out.result(object, || match report.done_before {
        true => format!("the reply to {} was there already", report.request),
        false => format!(
            "reply to {} in {} after {:.1} s, of which {:.2} s were the circuit ({:.1} KiB)",
            report.request,
            options.files.out.display(),
            report.all_seconds,
            report.seconds,
            report.bytes as f64 / 1024.0
        ),
    })
}

/// Decrypts a reply, prints the answers, and writes them to `npy` if it is given.
pub fn decrypt(manifest: &Path, keys: &Path, reply: &Path, npy: Option<&Path>, out: &Output) -> Result<(), CliError> {
    let client = network_client(manifest)?;
    let ports = &client.plan().outputs;
    // Before the key is used.
    let array = match (npy, ports.as_slice()) {
        (Some(path), [port]) => Some((path, port)),
        (Some(_), ports) => return Err(CliError::SeveralOutputs { outputs: ports.len() }),
        (None, _) => None,
    };
    if let Some((path, _)) = array {
        crate::overwrite::refuse(path, "give another name")?;
    }
    let opened = decrypt_outputs(manifest, keys, reply)?;
    if let Some((path, port)) = array {
        let shape: Vec<usize> = [opened.outputs.len()].into_iter().chain(port.shape.iter().copied()).collect();
        let numbers: Vec<f64> = opened.outputs.iter().flatten().flat_map(Tensor::data).copied().collect();
        let written = fs::write(path, to_npy(&shape, &numbers));
        written.map_err(|source| CliError::WriteFile { path: path.to_owned(), source })?;
    }
    for (index, answers) in opened.outputs.iter().enumerate() {
        shown(out, index, ports, answers)?;
    }
    let decryptions = usize::try_from(opened.decryptions).unwrap_or(usize::MAX);
    out.summary(
        json!({ "inputs": opened.outputs.len(), "decryptions": decryptions }),
        &format!(
            "{}; {} opened with this key so far",
            counted(opened.outputs.len(), "input"),
            counted(decryptions, "ciphertext")
        ),
    )
}

/// Runs inputs under a key that is made for it, and compares the answers with those in the clear.
pub fn verify(subject: &Subject<'_>, bytes: &[u8], out: &Output) -> Result<(), CliError> {
    let graph = load(subject.dir)?;
    let inputs = graph.read_inputs(bytes)?;
    let circuit = subject.circuit(&graph, 1)?;
    let (declared, parameters) = (circuit.plan().error, circuit.plan().parameters.clone());
    if parameters.starts_with("insecure") {
        out.result(json!({ "insecure": true, "parameters": parameters }), || format!("INSECURE: {parameters}"))?;
    }
    let ports: Vec<Port> = graph.outputs().map(Port::of).collect();
    let both = Rehearsal::new(circuit)?;
    let bar = out.progress(inputs.len() as u64, "inputs");
    let (mut worst, mut seconds, mut near, mut other) = (0.0_f64, 0.0, 0, 0);
    for (index, input) in inputs.iter().enumerate() {
        let clear = graph.run(input)?;
        let found = both.answers(input)?;
        seconds += found.seconds;
        let private = found.outputs.into_iter().next().unwrap_or_default();
        for ((port, clear), private) in ports.iter().zip(&clear).zip(&private) {
            let apart = clear.data().iter().zip(private.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            worst = worst.max(apart);
            let ((class, margin), (theirs, _)) = (largest(clear.data()), largest(private.data()));
            // Of one number, or of two that are nearly the same, the largest says nothing.
            let says = margin.is_some_and(|margin| margin > MARGIN);
            (near, other) = (near + usize::from(!says), other + usize::from(says && class != theirs));
            let object = json!({
                "input_index": index, "output": port.name, "error": apart, "largest": class, "largest_private": theirs,
                "margin": margin,
            });
            out.result(object, || {
                let name = &port.name;
                format!("input {index}, {name}: error {apart:.1e}, largest {class} in the clear, {theirs} privately")
            })?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let each = seconds / inputs.len().max(1) as f64;
    out.summary(
        json!({
            "inputs": inputs.len(), "parameters": parameters, "error": worst, "declared": declared,
            "other_largest": other, "undecided": near, "seconds_per_input": each,
        }),
        &format!(
            "{} under a key ({parameters}): error up to {worst:.1e}, {declared:.1e} declared; the largest number differs \
             {}, where the next is more than {MARGIN} away; {each:.2} s an input",
            counted(inputs.len(), "input"),
            counted(other, "time")
        ),
    )
}

/// The place of the largest number, and how far it is from the next.
fn largest(numbers: &[f64]) -> (usize, Option<f64>) {
    let mut order: Vec<(usize, f64)> = numbers.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    match order.as_slice() {
        [first, second, ..] => (first.0, Some(first.1 - second.1)),
        [first] => (first.0, None),
        [] => (0, None),
    }
}
