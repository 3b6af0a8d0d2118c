//! poulpy's CKKS for comparison with ours: one JSON object per line, with the fields of docs/benchmarks.md.
//!
//!     peer-poulpy ops | boot [repetitions]
//!
//! Uses its IFMA backend on one core. `boot` runs the fastest full-slot preset, which transforms slots to coefficients
//! first.

use std::collections::HashMap;
use std::time::Instant;

use poulpy_ckks::api::*;
use poulpy_ckks::layouts::CKKSPlaintextAlloc;
use poulpy_ckks::presets::bootstrapping::all;
use poulpy_ckks::test_suite::CKKSTestParams;
use poulpy_ckks::test_suite::helpers::{alloc_ct, gen_atk, gen_sk_with_raw, gen_tsk};
use poulpy_ckks::test_suite::presets::{BootstrappingPresetRun, preset_for_backend};
use poulpy_ckks::{GLWEPlaintextMeta, Scale, SetCKKSInfos, SlotsKind};
use poulpy_cpu_avx512::{NTT3x42CIIfma, NTT3x42Ifma};
use poulpy_hal::api::{ScratchOwnedAlloc, ScratchOwnedBorrow};
use poulpy_hal::layouts::{HostBytesBackend, Module, ScratchOwned};
use poulpy_hal::source::Source;

type Backend = NTT3x42Ifma;

const PRESET: &str = "n16_d35_k685";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("ops") => ops(),
        Some("boot") => boot(arguments.get(2).map_or(3, |n| n.parse().expect("a number of repetitions"))),
        _ => {
            eprintln!("usage: peer-poulpy ops | boot [repetitions]");
            std::process::exit(2);
        }
    }
}

/// Peak resident memory in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Median seconds of `f`, and the number of runs.
fn measure(mut f: impl FnMut()) -> (f64, usize) {
    f();
    let start = Instant::now();
    f();
    let one = start.elapsed().as_secs_f64();
    let inner = (0.02 / one).clamp(1.0, 200.0) as usize;
    let runs = (1.0 / (one * inner as f64)).clamp(5.0, 15.0) as usize;
    let mut samples: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            (0..inner).for_each(|_| f());
            start.elapsed().as_secs_f64() / inner as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], runs)
}

fn row(name: &str, modulus_bits: usize, f: impl FnMut()) {
    let (seconds, runs) = measure(f);
    println!(
        r#"{{"peer":"poulpy 0.10.0","name":"{name}","params":{{"log_n":16,"modulus_bits":{modulus_bits},"backend":"ntt3x42-ifma"}},"seconds":{seconds:e},"runs":{runs},"threads":1,"peak_rss":{}}}"#,
        peak()
    );
}

fn ops() {
    let (n, base2k, log_delta, widest) = (1usize << 16, 52usize, 46usize, 1394usize);
    let p = CKKSTestParams {
        n,
        base2k,
        k: widest,
        prec_meta: GLWEPlaintextMeta {
            scale: Scale::Log(log_delta),
            slots: SlotsKind::Complex,
            log_sparsity: 0,
        },
        // 46 + 6 = 52 bits: one limb per plaintext.
        prec_log_budget: 6,
        hw: 1024,
        dsize: 4,
        rank: 1,
    };
    let module = Module::<Backend>::new(n as u64);
    let host = Module::<HostBytesBackend>::new(n as u64);
    let mut scratch = ScratchOwned::<Backend>::alloc(2usize << 30);
    let (raw, sk) = gen_sk_with_raw(&p, &module, &host, [7u8; 32]);
    let tensor_key = gen_tsk(&p, &module, &raw, &mut scratch.borrow());
    let mut rotation_keys = HashMap::new();
    let g = module.ckks_galois_element(1);
    rotation_keys.insert(g, gen_atk(&p, &module, g, &raw, &mut scratch.borrow()));
    let slots = n / 2;
    let re: Vec<f64> = (0..slots).map(|i| ((i * 37 % 1001) as f64) / 1001.0 - 0.5).collect();
    let im: Vec<f64> = (0..slots).map(|i| ((i * 91 % 1003) as f64) / 1003.0 - 0.5).collect();
    // The widths of our ciphertexts with 2, 6, 13 and 28 rescales left.
    for bits in [130, 290, 570, 1280] {
        let mut pt = module.ckks_plaintext_alloc_from_slots(slots, base2k.into(), (log_delta + 6).into());
        pt.set_meta(p.prec_meta);
        module.ckks_encode_slots_host_into(&mut pt, &re, &im, &mut scratch.borrow()).unwrap();
        let (mut xa, mut xe) = (Source::new([3; 32]), Source::new([4; 32]));
        let mut a = alloc_ct(&p, &module, bits);
        module.ckks_encrypt_sk(&mut a, &pt, &sk, &mut xe, &mut xa, &mut scratch.borrow()).unwrap();
        let mut b = alloc_ct(&p, &module, bits);
        module.ckks_encrypt_sk(&mut b, &pt, &sk, &mut xe, &mut xa, &mut scratch.borrow()).unwrap();
        let mut sum = alloc_ct(&p, &module, bits);
        row("ckks.add", bits, || {
            module.ckks_add_into(&mut sum, &a, &b, &mut scratch.borrow()).unwrap();
        });
        let mut product = alloc_ct(&p, &module, bits - log_delta);
        row("ckks.mul_plain_rescale", bits, || {
            module.ckks_mul_pt_vec_into(&mut product, &a, &pt, &mut scratch.borrow()).unwrap();
        });
        row("ckks.mul_rescale", bits, || {
            module.ckks_mul_into(&mut product, &a, &b, &tensor_key, &mut scratch.borrow()).unwrap();
        });
        row("ckks.rotate", bits, || {
            module.ckks_rotate_into(1, &mut sum, &a, &rotation_keys, &mut scratch.borrow()).unwrap();
        });
    }
}

fn boot(repetitions: usize) {
    let presets = all().expect("presets");
    let preset = presets.iter().find(|p| p.name().contains(PRESET)).expect("the preset");
    let conjugate_invariant = preset.name().ends_with("_ci");
    let preset = preset_for_backend::<Backend, NTT3x42CIIfma>(preset).expect("a preset of this backend");
    let name = preset.name().to_string();
    let left = preset.output_k() - preset.input_k();
    let start = Instant::now();
    let mut run = if conjugate_invariant {
        BootstrappingPresetRun::<Backend>::setup_ci(preset)
    } else {
        BootstrappingPresetRun::<Backend>::setup(preset)
    };
    let setup = start.elapsed().as_secs_f64();
    let mut samples: Vec<f64> = (0..repetitions)
        .map(|_| {
            let start = Instant::now();
            run.bootstrap();
            start.elapsed().as_secs_f64()
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    let (re, im) = run.precision();
    println!(
        r#"{{"peer":"poulpy 0.10.0","name":"bootstrap","params":{{"set":"{name}","log_n":16,"slots":32768}},"seconds":{:e},"runs":{repetitions},"setup_seconds":{setup:.1},"threads":1,"modulus_bits_left":{left},"precision_bits_min":{:.2},"precision_bits_mean":{:.2},"peak_rss":{}}}"#,
        samples[samples.len() / 2],
        re.min_log2_prec.min(im.min_log2_prec),
        (re.avg_log2_prec + im.avg_log2_prec) / 2.0,
        peak()
    );
}
