use std::path::{Path, PathBuf};

use hushed_ckks::keys::EvalKeys;
use hushed_model::Tensor;
use hushed_model::testing::long;
use hushed_rlwe::audit::audit;
use serde_json::Value;
use zeroize::Zeroizing;

use super::*;
use crate::files::FileError;
use crate::files::exchange::{read_reply_from, reply_bytes, request_bytes};
use crate::plan::public_plan::Manifest;
use crate::run::encrypted::testing::{random, seeded};
use crate::run::reply::ReplySecret;
use crate::simulate::Simulator;

fn graph(name: &str) -> Graph {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../hushed-model/tests/golden/graphs").join(name);
    Graph::load(&folder).unwrap()
}

/// A network whose only tensor, if any, is `k.value` with these two numbers in a column.
fn written(graph: &str, constant: Option<[f32; 2]>) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("graph.json"), graph).unwrap();
    let header: &[u8] = match constant {
        Some(_) => br#"{"k.value":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}"#,
        None => b"{}",
    };
    let numbers: Vec<u8> = constant.into_iter().flatten().flat_map(f32::to_le_bytes).collect();
    let bytes = [&(header.len() as u64).to_le_bytes(), header, &numbers].concat();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    assert_eq!(network_sha256(folder.path()).unwrap().len(), 64);
    Graph::load(folder.path()).unwrap()
}

/// A committed network, and inputs around those that it was made for.
fn subject(name: &str, count: usize) -> (Graph, Vec<Vec<Tensor>>) {
    let graph = graph(name);
    let inputs = drawn(&graph, count);
    (graph, inputs)
}

fn drawn(graph: &Graph, count: usize) -> Vec<Vec<Tensor>> {
    let shape = &graph.inputs().next().unwrap().shape;
    let mut rng = seeded(7);
    let mut input = || Tensor::new(shape.clone(), random(&mut rng, shape.iter().product())).unwrap();
    (0..count).map(|_| vec![input()]).collect()
}

fn measured(graph: &Graph, samples: &[Vec<Tensor>]) -> NetworkChoices {
    let choices = NetworkChoices::measure(graph, "00".repeat(32), samples).unwrap();
    let read = NetworkChoices::from_json(&choices.to_json().unwrap()).unwrap();
    assert_eq!(read, choices);
    read
}

/// Both parties, with one secret of replies; sizes of what passes between them are as stated.
struct Both(Rehearsal);

impl Both {
    fn new(circuit: Circuit) -> Both {
        let bytes = circuit.plan().to_json().unwrap();
        let (any, _) = AnyManifest::from_json(&bytes).unwrap();
        assert!(matches!(&any, AnyManifest::Network(found) if **found == *circuit.plan()));
        Both(Rehearsal::new(circuit).unwrap())
    }

    fn request(&self, inputs: &[Tensor]) -> Vec<u8> {
        let (bytes, client) = (self.0.request(inputs).unwrap(), &self.0.client);
        assert_eq!(bytes.len() as u64, request_bytes(client.plan(), client.params()).unwrap());
        bytes
    }

    fn reply(&self, request: &[u8]) -> Result<Vec<u8>, FheError> {
        let (bytes, _) = self.0.reply(request, &ReplySecret::from_bytes(Zeroizing::new([5; 32])))?;
        assert_eq!(bytes.len() as u64, reply_bytes(self.0.client.plan(), self.0.client.params()));
        Ok(bytes)
    }

    fn opened(&self, reply: &[u8], inputs: usize) -> Result<Vec<Vec<Tensor>>, FheError> {
        self.0.opened(reply, inputs)
    }

    fn answers(&self, inputs: &[Tensor]) -> Vec<Vec<Tensor>> {
        self.opened(&self.reply(&self.request(inputs)).unwrap(), inputs.len()).unwrap()
    }
}

/// The largest difference of answers from those in the clear.
fn worst(graph: &Graph, inputs: &[Tensor], answers: &[Vec<Tensor>]) -> f64 {
    let mut worst = 0.0_f64;
    assert_eq!(inputs.len(), answers.len());
    for (input, found) in inputs.iter().zip(answers) {
        let exact = graph.run(std::slice::from_ref(input)).unwrap();
        assert_eq!(found.len(), exact.len());
        for (found, exact) in found.iter().zip(&exact) {
            assert_eq!(found.shape(), exact.shape());
            let apart = found.data().iter().zip(exact.data()).map(|(a, b)| (a - b).abs());
            worst = apart.fold(worst, f64::max);
        }
    }
    worst
}

/// At the smallest secure sets: inputs that were no samples are answered within the declared error, through files, and
/// every key is within the table.
#[test]
fn an_encrypted_network_answers_as_in_the_clear() {
    let (graph, inputs) = subject("mlp", 24);
    let (samples, others) = inputs.split_at(20);
    let circuit = Circuit::smallest(&graph, &measured(&graph, samples), 2).unwrap();
    assert_eq!(
        circuit.plan().parameters,
        "n15-shallow-16x40",
        "its polynomials take more levels than the smallest has"
    );
    let declared = circuit.plan().error;
    assert!(declared > 0.0 && declared < 1e-2, "{declared:e}");
    let both = Both::new(circuit);
    let sent = [others[0][0].clone(), others[1][0].clone()];
    let worst = worst(&graph, &sent, &both.answers(&sent));
    assert!(worst <= declared, "{worst:e} and {declared:e}");
    // Nearer than anything that is not the answer.
    let apart = |a: &Tensor, b: &Tensor| a.data().iter().zip(b.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let other = apart(&graph.run(&others[0]).unwrap()[0], &graph.run(&others[1]).unwrap()[0]);
    assert!(other > 10.0 * declared, "{other:e}");
}

/// What a chain of few levels cannot do at once is refreshed: counted, with the numbers of a chain that is long enough,
/// and under a key within the declared error in all slots.
#[test]
fn what_is_too_deep_is_refreshed() {
    // Sums that several functions read have one scale and several bounds; squares and products have bounds, too.
    let sums = written(
        r#"{"version": 1, "inputs": [{"name": "x", "shape": [5]}], "nodes": [
        {"name": "stem", "op": "Mul", "inputs": ["x"], "attributes": {"value": 0.9}},
        {"name": "wide", "op": "Mul", "inputs": ["x"], "attributes": {"value": 3.0}},
        {"name": "act1", "op": "Tanh", "inputs": ["wide"], "attributes": {"degree": 15}},
        {"name": "sum1", "op": "Add", "inputs": ["stem", "act1"]},
        {"name": "act2", "op": "SiLU", "inputs": ["sum1"], "attributes": {"degree": 7}},
        {"name": "less", "op": "Mul", "inputs": ["act2"], "attributes": {"value": -0.8}},
        {"name": "sum2", "op": "Add", "inputs": ["sum1", "less"]},
        {"name": "act3", "op": "Tanh", "inputs": ["sum2"], "attributes": {"degree": 7}},
        {"name": "square", "op": "Square", "inputs": ["sum2"]},
        {"name": "fourth", "op": "Mul", "inputs": ["square", "square"]},
        {"name": "product", "op": "Mul", "inputs": ["fourth", "act3"]},
        {"name": "with_x", "op": "Add", "inputs": ["x", "product"]},
        {"name": "act4", "op": "Tanh", "inputs": ["with_x"], "attributes": {"degree": 7}},
        {"name": "end", "op": "Mul", "inputs": ["act4"], "attributes": {"value": 2.0}}],
        "outputs": [{"name": "end"}]}"#,
        None,
    );
    for (name, graph, [refreshes, rescaled, levels]) in
        [("sums", sums, [8, 3, 20]), ("mlp", graph("mlp"), [1, 1, 9]), ("cnn", graph("cnn"), [3, 0, 17])]
    {
        let inputs = drawn(&graph, 20);
        let (sent, choices) = (inputs[0].as_slice(), measured(&graph, &inputs[1..]));
        let on = |set: &str| Circuit::new(&graph, &choices, 1, set);
        let exact = |circuit: &Circuit| {
            let (slots, plan) = (circuit.params.slots(), circuit.plan());
            let on = Simulator::new(&circuit.params, slots).unwrap();
            let numbers = sent[0].data().iter().map(|v| v / plan.input_bound);
            let input = on.vector(packed(numbers, plan.period, slots), plan.upload).unwrap();
            circuit.computed(&on, input).unwrap().iter().flat_map(|v| v.values().to_vec()).collect::<Vec<f64>>()
        };
        let few = on("insecure-shallow/9/5").err().unwrap();
        assert!(matches!(few, FheError::Levels { .. }), "{name}: {few}");
        let (circuit, long) = (on("insecure-test/9/5").unwrap(), on("insecure-shallow/9/24").unwrap());
        let found = [circuit.refreshes(), circuit.refreshes.rescaled.len(), circuit.levels()];
        assert_eq!((found, long.refreshes()), ([refreshes, rescaled, levels], 0), "{name}");
        assert!(circuit.plan().upload <= circuit.params.fresh_limbs());
        let polynomials = exact(&long);
        let apart = |found: &[f64]| found.iter().zip(&polynomials).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let without_errors = apart(&exact(&circuit));
        assert!(without_errors < 1e-9, "{name}: {without_errors:e}");
        let declared = circuit.plan().error;
        let answers = Both::new(circuit).answers(sent);
        let (near, worst) = (apart(answers[0][0].data()), worst(&graph, sent, &answers));
        assert!(near < 2e-3 && worst <= declared, "{name}: {near:e}, {worst:e} and {declared:e}");
    }
}

/// A trained ResNet-8 in a small ring names glyphs of fonts that it was not trained on as in the clear.
#[test]
fn a_residual_network_names_glyphs_under_a_key() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/networks/resnet");
    let graph = Graph::load(&folder).unwrap();
    let inputs = |name: &str| graph.read_inputs(&std::fs::read(folder.join(name)).unwrap()).unwrap();
    let choices = measured(&graph, &inputs("samples.jsonl"));
    let circuit = Circuit::new(&graph, &choices, 1, "insecure-test/11/14").unwrap();
    assert_eq!((circuit.refreshes(), circuit.levels(), circuit.plan().upload), (5, 36, 15));
    let (declared, both) = (circuit.plan().error, Both::new(circuit));
    let class = |logits: &Tensor| logits.data().iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
    for input in inputs("held-out.jsonl").iter().take(2) {
        let answers = both.answers(input);
        let worst = worst(&graph, input, &answers);
        assert!(worst <= declared, "{worst:e} and {declared:e}");
        assert_eq!(class(&answers[0][0]), class(&graph.run(input).unwrap()[0]));
    }
    if long() {
        let circuit = Circuit::smallest(&graph, &choices, 1).unwrap();
        let plan = circuit.plan();
        assert_eq!((plan.parameters.as_str(), circuit.refreshes(), plan.upload), ("n16-boot-14x40", 5, 15));
    }
}

/// Convolutions, poolings, norms, values that are joined and several answers, in small rings.
#[test]
fn encrypted_networks_answer_as_in_the_clear() {
    for (name, parameters) in
        [("cnn", "insecure-shallow/10/20"), ("joins", "insecure-shallow/6/16"), ("norms", "insecure-shallow/6/16")]
    {
        let (graph, inputs) = subject(name, 12);
        let circuit = Circuit::new(&graph, &measured(&graph, &inputs[1..]), 1, parameters).unwrap();
        let (declared, sent) = (circuit.plan().error, [inputs[0][0].clone()]);
        let worst = worst(&graph, &sent, &Both::new(circuit).answers(&sent));
        assert!(worst <= declared && declared < 0.2, "{name}: {worst:e} and {declared:e}");
    }
}

/// Of a network whose arguments are all far from 0: slots without a number used to be 0, where the polynomial is
/// enormous, and wrapped around the modulus with all others.
#[test]
fn slots_without_a_number_stay_within_intervals() {
    let graph = r#"{"version": 1, "inputs": [{"name": "x", "shape": [3]}], "nodes": [
        {"name": "far", "op": "Add", "inputs": ["x"], "attributes": {"value": 40.0}},
        {"name": "act", "op": "Sigmoid", "inputs": ["far"], "attributes": {"degree": 31}},
        {"name": "deep", "op": "Tanh", "inputs": ["act"], "attributes": {"degree": 15}}],
        "outputs": [{"name": "deep", "shape": [3]}]}"#;
    let graph = written(graph, None);
    let of = |numbers: [f64; 3]| vec![Tensor::new(vec![3], numbers.to_vec()).unwrap()];
    let samples = [of([0.5, -1.0, 1.0]), of([-0.5, 0.25, 0.0])];
    let choices = measured(&graph, &samples);
    assert_eq!(choices.intervals["act"], [39.0, 41.0]);
    let circuit = Circuit::new(&graph, &choices, 1, "insecure-shallow/6/12").unwrap();
    let (declared, sent) = (circuit.plan().error, samples[0].clone());
    let worst = worst(&graph, &sent, &Both::new(circuit).answers(&sent));
    assert!(worst <= declared && declared < 1e-2, "{worst:e} and {declared:e}");
}

/// Operations one by one, on a key.
#[test]
fn each_operation_answers_as_in_the_clear() {
    for nodes in [
        r#"{"name": "y", "op": "Exp", "inputs": ["x"], "attributes": {"degree": 15}}"#,
        r#"{"name": "y", "op": "Mean", "inputs": ["x"], "attributes": {"dim": [1]}}"#,
        r#"{"name": "y", "op": "Concat", "inputs": ["x", "x"], "attributes": {"dim": -1}}"#,
        r#"{"name": "k", "op": "Constant", "inputs": [], "attributes": {"shape": [2, 1]}},
            {"name": "y", "op": "Concat", "inputs": ["x", "k", "x"], "attributes": {"dim": 2}}"#,
        // Variances of three numbers, not far from 0.1.
        r#"{"name": "n", "op": "LayerNorm", "inputs": ["x"], "attributes":
                {"normalized_shape": [3], "elementwise_affine": false, "eps": 0.1, "degree": 31}},
            {"name": "y", "op": "Mean", "inputs": ["n"], "attributes": {"dim": 1}}"#,
        // Operands of several scales, in a map with what reads them.
        r#"{"name": "s", "op": "Square", "inputs": ["x"]},
            {"name": "c", "op": "Concat", "inputs": ["s", "x", "s"], "attributes": {"dim": 1}},
            {"name": "y", "op": "Mean", "inputs": ["c"], "attributes": {"dim": -2, "keepdim": true}}"#,
    ] {
        let head = r#""version": 1, "inputs": [{"name": "x", "shape": [2, 3]}], "outputs": [{"name": "y"}]"#;
        let constant = nodes.contains("Constant").then_some([0.5, -2.0]);
        let graph = written(&format!(r#"{{{head}, "nodes": [{nodes}]}}"#), constant);
        let mut rng = seeded(11);
        let mut input = || vec![Tensor::new(vec![2, 3], random(&mut rng, 6)).unwrap()];
        let (samples, sent) = ((0..12).map(|_| input()).collect::<Vec<_>>(), input());
        let circuit = Circuit::new(&graph, &measured(&graph, &samples), 1, "insecure-shallow/6/16").unwrap();
        let declared = circuit.plan().error;
        let worst = worst(&graph, &sent, &Both::new(circuit).answers(&sent));
        assert!(worst <= declared && declared < 2e-2, "{nodes}: {worst:e} and {declared:e}");
    }
}

/// A reply is the same however often it is made, reveals nothing to other keys, and cannot be changed.
#[test]
fn requests_and_replies_are_sealed() {
    let (graph, inputs) = subject("mlp", 12);
    let choices = measured(&graph, &inputs[1..]);
    let circuit = |inputs| Circuit::new(&graph, &choices, inputs, "insecure-shallow/8/16").unwrap();
    let (both, other) = (Both::new(circuit(2)), Both::new(circuit(2)));
    let sent = [inputs[0][0].clone()];
    let request = both.request(&sent);
    let reply = both.reply(&request).unwrap();
    assert_eq!(both.reply(&request).unwrap(), reply);
    assert_ne!(both.request(&sent), request);
    // An input fewer than the plan has is not an answer.
    assert_eq!(both.opened(&reply, 1).unwrap().len(), 1);
    assert!(worst(&graph, &sent, &both.opened(&reply, 1).unwrap()) <= both.0.client.plan().error);

    let file = |error: FheError| match error {
        FheError::File(error) => error,
        error => panic!("{error}"),
    };
    let what = |error| match file(error) {
        FileError::Other { what, .. } => what,
        error => panic!("{error}"),
    };
    assert_eq!(what(other.reply(&request).err().unwrap()), "key set");
    assert_eq!(what(other.opened(&reply, 1).err().unwrap()), "key set");
    let several = Both::new(circuit(3));
    assert_eq!(what(several.reply(&request).err().unwrap()), "plan");
    for (bytes, which) in [(&request, 0), (&reply, 1)] {
        let refused = |bytes: &[u8]| match which {
            0 => both.reply(bytes).err(),
            _ => both.opened(bytes, 1).err(),
        };
        for length in [0, 1, 31, 32, 100, bytes.len() / 2, bytes.len() - 1] {
            file(refused(&bytes[..length]).unwrap());
        }
        for at in [0, 5, 20, 40, 150, bytes.len() / 2, bytes.len() - 40, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            file(refused(&changed).unwrap());
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        file(refused(&longer).unwrap());
    }
    // Whose numbers are not of the shape of an answer.
    let client = &both.0.client;
    let list = |bytes: &[u8]| {
        read_reply_from((bytes, bytes.len() as u64), Path::new("<test>"), client.plan(), client.params(), &both.0.id)
            .unwrap()
            .1
    };
    let mut swapped = list(&reply);
    let on = hushed_ckks::Evaluator::without_keys(client.params());
    let (times, scale) = (client.plan().reply.magnitude * 4.0, swapped[0].scale());
    let large = hushed_ckks::Encoder::new(client.params())
        .encode_real(&vec![times; client.params().slots()], swapped[0].limbs(), scale)
        .unwrap();
    on.add_plain_assign(&mut swapped[0], &large).unwrap();
    assert!(matches!(client.open(&both.0.secret, &swapped, 1), Err(FheError::ReplyShape { vector: 0, used: true })));
    let refused = |inputs: &[Tensor]| client.check(inputs).err().unwrap().to_string();
    assert!(refused(&[]).contains("0 inputs"));
    let three = [inputs[0][0].clone(), inputs[1][0].clone(), inputs[2][0].clone()];
    assert!(refused(&three).contains("3 inputs"));
    assert!(refused(&[Tensor::new(vec![2], vec![0.0; 2]).unwrap()]).contains("shape [2]"));
    let beyond = Tensor::new(vec![6], vec![1.01 * client.plan().input_bound; 6]).unwrap();
    assert!(refused(&[beyond]).contains("number beyond"));
}

/// No byte of a plan can be changed, except to bytes that mean the same, and what a plan may state is bounded.
#[test]
fn a_changed_plan_is_refused() {
    let (graph, inputs) = subject("mlp", 4);
    let circuit = Circuit::new(&graph, &measured(&graph, &inputs), 1, "insecure-shallow/8/16").unwrap();
    let (plan, params) = (circuit.plan().clone(), Arc::clone(circuit.params()));
    let good = plan.to_json().unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        if let Ok((read, _)) = NetworkPlan::from_json(&bytes) {
            assert_eq!(read, plan, "byte {at}");
        }
    }
    // Whoever writes a plan computes its hash as well: every number at which sizes break is refused or can be used.
    let whole: Value = serde_json::to_value(&plan).unwrap();
    let mut accepted = 0;
    for path in leaves(&whole, String::new()) {
        for value in crate::fuzz::values() {
            let mut edited = whole.clone();
            *edited.pointer_mut(&path).unwrap() = value;
            let Ok(edited) = serde_json::from_value::<NetworkPlan>(edited) else { continue };
            if let Ok((read, params)) = NetworkPlan::from_json(&edited.to_json().unwrap_or_default()) {
                accepted += 1;
                let bytes = request_bytes(&read, &params).unwrap() + reply_bytes(&read, &params);
                assert!(bytes > 0 && read.key_specs(&params).is_ok(), "{path}");
            }
        }
    }
    assert!(accepted > 0);
    let refused = |change: &dyn Fn(&mut NetworkPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        plan.check(&params).err().unwrap().to_string()
    };
    assert!(refused(&|p| p.period = 1 << 20).contains("period"));
    assert!(refused(&|p| p.input.shape = vec![usize::MAX, 2]).contains("shape"));
    assert!(refused(&|p| p.outputs.clear()).contains("outputs"));
    assert!(refused(&|p| p.inputs = 0).contains("inputs"));
    assert!(refused(&|p| p.inputs = 2).contains("reply"));
    assert!(refused(&|p| p.input_bound = 0.0).contains("bound"));
    assert!(refused(&|p| p.upload = 99).contains("primes"));
    assert!(refused(&|p| p.reply.deviation /= 2.0_f64.powi(30)).contains("reply"));
    assert!(refused(&|p| p.keys.reverse()).contains("keys"));
    assert!(refused(&|p| p.calibration_sha256 = "zz".repeat(32)).contains("calibration"));
}

/// The paths of all values that hold no others.
fn leaves(value: &Value, path: String) -> Vec<String> {
    match value {
        Value::Object(map) => map.iter().flat_map(|(key, inner)| leaves(inner, format!("{path}/{key}"))).collect(),
        Value::Array(list) => {
            let few = list.iter().enumerate().take(3);
            few.flat_map(|(index, inner)| leaves(inner, format!("{path}/{index}"))).collect()
        }
        _ => vec![path],
    }
}

/// What does not fit is refused by name, and squares alone fit the smallest set, with keys that are within the table.
#[test]
fn the_smallest_set_is_chosen() {
    let refused = |name: &str, parameters: &str| {
        let (graph, inputs) = subject(name, 2);
        Circuit::new(&graph, &measured(&graph, &inputs), 1, parameters).err().unwrap().to_string()
    };
    let calls = NetworkChoices::measure(&graph("calls"), String::new(), &[]).err().unwrap().to_string();
    assert!(calls.contains("a network of 2 inputs"));
    let few = refused("mlp", "insecure-shallow/10/5");
    assert!(few.contains("level"), "{few}");
    assert!(refused("cnn", "insecure-shallow/5/16").contains("numbers"));
    assert!(refused("mlp", "n3").contains("n3"));
    let (mlp, inputs) = subject("mlp", 2);
    assert!(NetworkChoices::measure(&mlp, String::new(), &[]).err().unwrap().to_string().contains("samples"));
    let mut other = measured(&mlp, &inputs);
    other.intervals.clear();
    assert!(Circuit::smallest(&mlp, &other, 1).err().unwrap().to_string().contains("no interval"));

    let squares = r#"{"version": 1, "inputs": [{"name": "x", "shape": [4]}], "nodes": [
        {"name": "half", "op": "Mul", "inputs": ["x"], "attributes": {"value": 0.5}},
        {"name": "act", "op": "Square", "inputs": ["half"]},
        {"name": "end", "op": "Add", "inputs": ["act"], "attributes": {"value": 1.0}}],
        "outputs": [{"name": "end"}]}"#;
    let graph = written(squares, None);
    let input = Tensor::new(vec![4], vec![1.0, -2.0, 3.0, 0.5]).unwrap();
    let choices = measured(&graph, &[vec![input.clone()]]);
    let circuit = Circuit::smallest(&graph, &choices, 1).unwrap();
    assert_eq!((circuit.plan().parameters.as_str(), circuit.plan().input_bound), ("n14-shallow-6x40", 8.0));
    let params = Arc::clone(circuit.params());
    let specs = circuit.plan().key_specs(&params).unwrap();
    let (declared, sent) = (circuit.plan().error, [input]);
    let both = Both::new(circuit);
    let worst = worst(&graph, &sent, &both.answers(&sent));
    assert!(worst <= declared && declared < 1e-2, "{worst:e} and {declared:e}");
    let keys = EvalKeys::generate(&both.0.secret, &specs, &mut seeded(9)).unwrap();
    audit(&keys.published().collect::<Vec<_>>()).unwrap();
}
