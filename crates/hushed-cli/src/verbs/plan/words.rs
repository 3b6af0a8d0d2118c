//! `hushed plan --protocol fhe` in words.

use hushed_fhe::plan::public_plan::AnswerRows;
use hushed_fhe::plan::{CurvePoint, FhePlanReport, Form, Step, TernaryMaps};
use hushed_math::cpu::Cpu;
use hushed_model::{StepId, counted};

use crate::output::gib;

pub fn priced(point: &CurvePoint) -> String {
    format!(
        "{:>5} texts at a time  {:>8.0} s  {:>7.1} s a text  keys {:>6.2} GiB  memory {:>6.1} GiB{}",
        point.texts,
        point.seconds,
        point.seconds_per_text,
        gib(point.key_bytes),
        gib(point.memory),
        if point.chosen { "  chosen" } else { "" },
    )
}

pub fn describe(step: &Step) -> String {
    let level = |level: Option<usize>| level.map_or("-".to_owned(), |l| l.to_string());
    let refreshed: Vec<String> = step.refreshed.iter().map(|(vectors, to)| format!("{vectors} → {to}")).collect();
    let disk = match step.work.disk_bytes {
        0 => String::new(),
        bytes => format!("  disk {:>6} MiB", bytes >> 20),
    };
    format!(
        "{:<34} level {:>2} → {:>2}  refreshed {:<12}  bootstraps {:>4}  key switches {:>6}  terms {:>9}  {:>8.1} s  {:>6} MiB{disk}",
        step.site,
        level(step.level_before),
        level(step.level_after),
        refreshed.join(", "),
        step.work.bootstraps(),
        step.work.key_switches(),
        step.work.linear_terms,
        step.work.seconds,
        step.peak >> 20,
    )
}

/// `offered`: whether the plan is that of a manifest, which declares an error of its own circuit. The placements that
/// were tried are listed if `verbose`.
pub fn summary(plan: &FhePlanReport, offered: bool, verbose: bool) -> String {
    let declared = if offered { "declared" } else { "or more, as a manifest declares" };
    let w = &plan.work;
    let assumed = match plan.assumed {
        true => "\ndegrees and steps are assumed: calibrate the model, and give --calibration",
        false => "",
    };
    let measured = match plan.prices.measured {
        true => "measured here".to_owned(),
        false => format!(
            "those of docs/benchmarks.md times {:.2} for this machine ({}; --measure quick has its own)",
            plan.prices.pace,
            Cpu::get().kernel_name()
        ),
    };
    let p = &plan.placement;
    let m = &plan.memory;
    let disk = match plan.disk {
        0 => String::new(),
        peak => format!(
            "disk               {:9.1} GiB at the server while it runs; {:.1} GiB written and read, at {:.1} GB/s assumed\n",
            gib(peak),
            gib(w.disk_bytes),
            plan.prices.disk / 1e9,
        ),
    };
    let shared = match p.per_place {
        1 => String::new(),
        most => format!(", up to {most} in the rows of one place"),
    };
    let mut text = format!(
        "{} of {} (room for {}{shared}), protocol {}, parameters {} of {:.0} bits{assumed}\n\
         time               {:9.0} s on {}, prices {measured}; {:.1} s a text\n\
         bootstraps         {:9} ({} of columns, {} of sums and variances), {:.0} s of the time; {:.2} a text\n\
         key switches       {:9} ({} rotations, {} relinearisations); {:.1} a text\n\
         weights × columns  {:9}\n\
         memory             {:9.1} GiB at the server: vectors {:.1}, keys {:.1}, matrices {:.1}, a bootstrap {:.1}, weights {:.1}, program {:.1}\n\
         {disk}upload             {:9.2} GiB a batch, and {:.2} GiB of keys once ({} rotations)\n\
         reply              {:9.1} MiB, numbers within {}, an error of deviation 2^{:.1} {declared}, kept to {} bits after the point\n\
         failure            2^{:.0} for all of it\n\
         placement          columns uploaded with {} primes, {} before attention, {} before the feed-forward, {} for sums and variances; \
         {} and {} baby steps, {} and {} at a time{}",
        counted(plan.texts, "text"),
        counted(plan.rows, "row"),
        plan.places,
        plan.protocol,
        plan.parameters,
        plan.log2_qp,
        w.seconds,
        counted(plan.prices.threads, "thread"),
        plan.per_text.seconds,
        w.bootstraps(),
        w.bootstraps_wide,
        w.bootstraps_narrow,
        w.bootstrap_seconds,
        plan.per_text.bootstraps,
        w.key_switches(),
        w.rotations,
        w.relinearisations,
        plan.per_text.key_switches,
        w.linear_terms,
        gib(m.total()),
        gib(m.vectors),
        gib(m.keys),
        gib(m.matrices),
        gib(m.bootstrap),
        gib(m.weights),
        gib(m.program),
        gib(plan.bytes_up),
        gib(plan.key_bytes),
        plan.rotation_keys,
        plan.bytes_down as f64 / f64::from(1 << 20),
        plan.reply.magnitude,
        plan.reply.deviation.log2(),
        plan.reply_bits,
        plan.failure_log2,
        p.upload,
        p.attention,
        p.feed_forward,
        p.statistics,
        p.scores_baby,
        p.attend_baby,
        counted(p.heads_together, "head"),
        counted(p.hidden_block, "hidden column"),
        if p.pairs { ", columns two in a vector" } else { "" },
    );
    for alternative in plan.alternatives.iter().filter(|_| verbose) {
        let seconds = match (&alternative.refused, alternative.seconds) {
            (Some(why), _) => format!("cannot run: {why}"),
            (None, Some(s)) => format!(
                "{s:.0} s for two layers, {:.1} GiB{}",
                gib(alternative.memory.unwrap_or(0)),
                if alternative.chosen { ", chosen" } else { "" }
            ),
            (None, None) => String::new(),
        };
        text += &format!("\n  {:<48} {seconds}", alternative.what);
    }
    if !verbose && !plan.alternatives.is_empty() {
        let others = counted(plan.alternatives.len(), "alternative");
        text += &format!("; {others} tried (--verbose)");
    }
    if let Some(logits) = plan.logits {
        text += &format!("\nanswer: {} a text", counted(logits, "logit"));
    }
    let width = plan.width;
    match plan.answer {
        Some(AnswerRows::Last) => {
            text += &format!("\nanswer: the hidden state of a text's last row, {width} numbers");
        }
        Some(AnswerRows::Rows) => {
            text += &format!("\nanswer: the hidden states of all rows of a text, {width} numbers each");
        }
        Some(AnswerRows::Logits) | None => {}
    }
    for maps in &plan.ternary {
        text += &format!("\nternary maps       {}", ternary(maps));
    }
    for exposure in &plan.exposures {
        text += &format!("\nseen by the {}: {}", exposure.who, exposure.sees);
    }
    text
}

/// How many ternary maps are computed in one way, which, and why.
fn ternary(maps: &TernaryMaps) -> String {
    let how = match maps.form {
        Form::Ternary => "stay ternary, which takes no level",
        Form::NormBefore => "are scalar, a level each, as the norm before is folded in",
        Form::SubNorm => "are scalar, a level each, as the norm inside the block has gains other than 1",
        Form::GivenScale => "are scalar, a level each, as their operands have a scale of their own",
        Form::PackedRows => "are scalar, a level each, as packed rows use diagonals",
    };
    let names: Vec<String> = maps.maps.iter().map(StepId::to_string).collect();
    format!("{} {how}: {}", maps.count, names.join(", "))
}
