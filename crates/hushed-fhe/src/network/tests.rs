use std::path::PathBuf;

use hushed_ckks::keys::{EvalKeys, SecretKey};

use super::*;
use crate::run::encrypted::testing::seeded;

/// A committed network, and inputs around those that it was made for.
fn subject(name: &str, count: usize) -> (Graph, Vec<Vec<Tensor>>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../hushed-model/tests/golden/graphs").join(name);
    let graph = Graph::load(&folder).unwrap();
    let shape = graph.inputs().next().unwrap().shape.clone();
    let size = shape.iter().product::<usize>();
    let mut rng = seeded(7);
    let inputs = (0..count)
        .map(|_| vec![Tensor::new(shape.clone(), crate::run::encrypted::testing::random(&mut rng, size)).unwrap()]);
    let inputs = inputs.collect();
    (graph, inputs)
}

/// Encrypts, runs and decrypts with keys of this plan, and returns the largest error.
fn encrypted(graph: &Graph, circuit: &Circuit, input: &Tensor) -> f64 {
    let plan = circuit.plan();
    let mut rng = seeded(3);
    let key = Arc::new(SecretKey::generate(plan.params().rlwe(), &mut rng));
    let keys = EvalKeys::generate(&key, plan.key_specs(), &mut rng).unwrap();
    let encoder = Arc::new(Encoder::new(plan.params()));
    let sent = plan.encrypt(&encoder, &Encryptor::new(plan.params(), &key).unwrap(), &mut rng, input).unwrap();
    assert_eq!(sent.limbs(), plan.limbs());
    let reply = circuit.run(Evaluator::new(plan.params(), Arc::new(keys)).unwrap(), sent).unwrap();
    let found = plan.decrypt(&Decryptor::new(&encoder, &key).unwrap(), &reply).unwrap();
    let exact = graph.run(std::slice::from_ref(input)).unwrap();
    assert_eq!(found.len(), exact.len());
    let mut worst = 0.0_f64;
    for (found, exact) in found.iter().zip(&exact) {
        assert_eq!(found.shape(), exact.shape());
        let apart = found.data().iter().zip(exact.data()).map(|(a, b)| (a - b).abs());
        worst = apart.fold(worst, f64::max);
    }
    worst
}

/// At the smallest secure set: inputs that were no samples are answered within the declared error.
#[test]
fn an_encrypted_network_answers_as_in_the_clear() {
    let (graph, inputs) = subject("mlp", 24);
    let (samples, others) = inputs.split_at(20);
    let params = CkksParams::n15_shallow().unwrap();
    let circuit = Circuit::new(&graph, &params, samples).unwrap();
    let declared = circuit.plan().error();
    assert!(declared > 0.0 && declared < 1e-2, "{declared:e}");
    let worst = encrypted(&graph, &circuit, &others[0][0]);
    assert!(worst <= declared, "{worst:e} and {declared:e}");
    // Nearer than anything that is not the answer.
    let apart = |a: &Tensor, b: &Tensor| a.data().iter().zip(b.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let other = apart(&graph.run(&others[0]).unwrap()[0], &graph.run(&others[1]).unwrap()[0]);
    assert!(other > 10.0 * declared, "{other:e}");
}

/// Convolutions, poolings and two answers, in a small ring.
#[test]
fn an_encrypted_convolution_answers_as_in_the_clear() {
    let (graph, inputs) = subject("cnn", 12);
    let params = CkksParams::insecure_shallow(10, 20).unwrap();
    let circuit = Circuit::new(&graph, &params, &inputs[1..]).unwrap();
    let (worst, declared) = (encrypted(&graph, &circuit, &inputs[0][0]), circuit.plan().error());
    assert!(worst <= declared && declared < 0.2, "{worst:e} and {declared:e}");
}

/// What does not fit is refused by name.
#[test]
fn networks_that_do_not_fit_are_refused() {
    let refused = |name, params: &Arc<CkksParams>| {
        let (graph, inputs) = subject(name, 2);
        Circuit::new(&graph, params, &inputs).err().unwrap().to_string()
    };
    let params = CkksParams::insecure_shallow(10, 16).unwrap();
    assert!(refused("calls", &params).contains("a network of 2 inputs"));
    let few = CkksParams::insecure_shallow(10, 5).unwrap();
    assert!(refused("mlp", &few).contains("level"), "{}", refused("mlp", &few));
    let small = CkksParams::insecure_shallow(5, 16).unwrap();
    assert!(refused("cnn", &small).contains("numbers"));
    let (graph, _) = subject("mlp", 1);
    assert!(Circuit::new(&graph, &params, &[]).err().unwrap().to_string().contains("samples"));
}
