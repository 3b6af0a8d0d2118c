//! The errors of every step as a picture: boxes as in MOAI's Figures 3 and 6, on a scale of powers of two, in SVG
//! written as text.

use std::fmt::Write as _;

use hushed_fhe::verify::{Difference, Stage};

/// In pixels: a step, a box within it, the margins.
const STEP: f64 = 34.0;
const BOX: f64 = 8.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 58.0;
const HEIGHT: f64 = 360.0;
const BOTTOM: f64 = 120.0;

/// What is drawn for a step: name, colour, which differences.
type Series = (&'static str, &'static str, fn(&Stage) -> Option<Difference>);

const SERIES: [Series; 3] = [
    ("polynomials, to the clear", "#4269d0", |s| Some(s.polynomial)),
    ("predicted noise, to the polynomials", "#efb118", |s| Some(s.predicted_noise)),
    ("encrypted, to the polynomials", "#ff725c", |s| s.encrypted_noise),
];

/// The picture. A box holds half of the differences, the line in it their median, the dot is their root mean square,
/// and the line above ends at the largest.
pub fn svg(stages: &[Stage], title: &str) -> String {
    let shown: Vec<&Series> = SERIES.iter().filter(|(_, _, of)| stages.iter().any(|s| of(s).is_some())).collect();
    let (low, high) = range(stages, &shown);
    let y = |value: f64| {
        let part = (value.max(f64::MIN_POSITIVE).log2().max(low) - low) / (high - low);
        TOP + HEIGHT * (1.0 - part)
    };
    let (width, height) = (LEFT + STEP * stages.len() as f64 + 20.0, TOP + HEIGHT + BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{}</text>\n",
        escaped(title)
    );
    let mut put = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{line}");
    };
    for power in (low as i32..=high as i32).filter(|p| p % 2 == 0) {
        let (at, end) = (y(f64::from(power).exp2()), width - 20.0);
        put(format!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end:.1}\" y2=\"{at:.1}\" stroke=\"#eee\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">2^{power}</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    for (i, (name, colour, _)) in shown.iter().enumerate() {
        let x = LEFT + 240.0 * i as f64;
        put(format!(
            "<rect x=\"{x}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"39\">{name}</text>",
            x + 16.0
        ));
    }
    for (i, stage) in stages.iter().enumerate() {
        let middle = LEFT + STEP * (i as f64 + 0.5);
        if stage.is_output() {
            let x = middle + STEP / 2.0;
            let end = TOP + HEIGHT + 8.0;
            put(format!("<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{end:.1}\" stroke=\"#999\"/>"));
        }
        let below = TOP + HEIGHT + 12.0;
        put(format!(
            "<text x=\"{middle:.1}\" y=\"{below:.1}\" font-size=\"10\" text-anchor=\"end\" transform=\"rotate(-60 {middle:.1} {below:.1})\">{} {}</text>",
            stage.layer,
            escaped(&stage.step().to_string())
        ));
        for (k, (_, colour, of)) in shown.iter().enumerate() {
            let Some(d) = of(stage) else { continue };
            let offset = (k as f64 - (shown.len() as f64 - 1.0) / 2.0) * (BOX + 2.0);
            put(drawn(&d, middle + offset, colour, &y));
        }
    }
    let x = TOP + HEIGHT / 2.0;
    put(format!(
        "<text x=\"16\" y=\"{x}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {x})\">difference over the RMS of the clear step</text>"
    ));
    out + "</svg>\n"
}

/// One box.
fn drawn(d: &Difference, x: f64, colour: &str, y: &impl Fn(f64) -> f64) -> String {
    let [first, median, third] = d.quartiles.map(y);
    let (left, right) = (x - BOX / 2.0, x + BOX / 2.0);
    let height = (first - third).max(0.5);
    format!(
        "<line x1=\"{x:.1}\" y1=\"{third:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>\
         <rect x=\"{left:.1}\" y=\"{third:.1}\" width=\"{BOX}\" height=\"{height:.1}\" fill=\"{colour}\" fill-opacity=\"0.4\" stroke=\"{colour}\"/>\
         <line x1=\"{left:.1}\" y1=\"{median:.1}\" x2=\"{right:.1}\" y2=\"{median:.1}\" stroke=\"black\"/>\
         <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2\"><title>RMS {:.2e}, largest {:.2e}</title></circle>",
        y(d.max),
        y(d.rms),
        d.rms,
        d.max
    )
}

/// Powers of two around all that is drawn: from below the lowest quartile, at most 40 below the top.
fn range(stages: &[Stage], shown: &[&Series]) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for stage in stages {
        for d in shown.iter().filter_map(|(_, _, of)| of(stage)) {
            if d.quartiles[0] > 0.0 {
                low = low.min(d.quartiles[0].log2());
            }
            if d.max > 0.0 {
                high = high.max(d.max.log2());
            }
        }
    }
    if !low.is_finite() || !high.is_finite() {
        return (-40.0, 0.0);
    }
    let high = high.ceil();
    (low.floor().max(high - 40.0).min(high - 2.0), high)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(layer: usize, size: f64) -> Stage {
        let d =
            Difference { rms: size, bits: -size.log2(), max: 8.0 * size, quartiles: [0.25 * size, 0.5 * size, size] };
        Stage {
            output: true,
            site: hushed_model::StepId::outside("feed_forward").part("norm"),
            layer,
            clear_rms: 1.0,
            polynomial: d,
            predicted: d,
            predicted_noise: d,
            encrypted: None,
            encrypted_noise: None,
        }
    }

    #[test]
    fn a_picture_has_a_box_a_rung_and_step_and_opens_what_it_closes() {
        let stages = [stage(0, 0.01), stage(1, 0.0001)];
        let picture = svg(&stages, "a < b & c");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt; b &amp; c"));
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(!picture.contains("encrypted"), "what was not run is not shown");
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        for tag in ["svg", "text", "title", "circle"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(picture.matches(&open).count(), picture.matches(&close).count());
        }
        // Larger errors are higher up.
        let heights: Vec<f64> =
            picture.split("cy=\"").skip(1).filter_map(|s| s.split('"').next()?.parse().ok()).collect();
        assert!(heights[0] < heights[2]);
    }

    #[test]
    fn exact_steps_have_a_picture_too() {
        let picture = svg(&[stage(0, 0.0)], "");
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
