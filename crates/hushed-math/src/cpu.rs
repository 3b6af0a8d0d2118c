//! What the processor can do, found once at run time.
//!
//! A kernel that uses an instruction set takes a token of it; only [`Cpu`] makes tokens, and only after detection. The
//! environment variable `HUSHED_DENY_AVX512=1`, read once, denies every kernel on 512-bit registers, so that tests and
//! reports can run the portable path on a machine that has more; `HUSHED_DENY_AMX=1` denies those on tiles only.

#[cfg(target_arch = "x86_64")]
mod amx;

use std::sync::OnceLock;

/// Proof that AVX-512 F, DQ, VL, BW, IFMA and VBMI may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveIfma(());

/// Proof that AMX tiles of bytes may be used, the operating system having been asked for their state.
#[derive(Clone, Copy, Debug)]
pub struct HaveAmx(());

/// Proof that VAES on 512-bit registers (with AVX-512 F, BW and AES-NI) may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveVaes(());

/// Proof that AES-NI (with SSE2) may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveAesni(());

/// The instruction sets that kernels may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    ifma: Option<HaveIfma>,
    amx: Option<HaveAmx>,
    vaes: Option<HaveVaes>,
    aesni: Option<HaveAesni>,
}

impl Cpu {
    /// This machine, detected on the first call.
    pub fn get() -> Cpu {
        static CPU: OnceLock<Cpu> = OnceLock::new();
        *CPU.get_or_init(|| {
            let denied = |name| std::env::var_os(name).is_some_and(|value| value == "1");
            let found = Cpu::detect();
            if denied("HUSHED_DENY_AVX512") {
                found.without_avx512()
            } else if denied("HUSHED_DENY_AMX") {
                found.without_amx()
            } else {
                found
            }
        })
    }

    /// No special instructions.
    pub const fn portable() -> Cpu {
        Cpu {
            ifma: None,
            amx: None,
            vaes: None,
            aesni: None,
        }
    }

    /// This processor with the kernels on 512-bit registers denied.
    pub fn without_avx512(self) -> Cpu {
        Cpu {
            ifma: None,
            amx: None,
            vaes: None,
            ..self
        }
    }

    /// Token for the 52-bit multiply-add kernels.
    pub fn ifma(self) -> Option<HaveIfma> {
        self.ifma
    }

    /// This processor with the kernels on tiles denied.
    pub fn without_amx(self) -> Cpu {
        Cpu { amx: None, ..self }
    }

    /// Token for the kernels on tiles of bytes; there is then one for IFMA too.
    pub fn amx(self) -> Option<HaveAmx> {
        self.amx
    }

    /// Token for the four-block AES kernels.
    pub fn vaes(self) -> Option<HaveVaes> {
        self.vaes
    }

    /// Token for the one-block AES kernels.
    pub fn aesni(self) -> Option<HaveAesni> {
        self.aesni
    }

    /// Name of the arithmetic kernel, for reports: `avx512-ifma` or `portable`.
    pub fn kernel_name(self) -> &'static str {
        if self.ifma.is_some() {
            "avx512-ifma"
        } else {
            "portable"
        }
    }

    /// Every variant that this machine can run, for tests that compare them; portable first.
    #[cfg(test)]
    pub(crate) fn variants() -> Vec<Cpu> {
        let mut all = vec![Cpu::portable()];
        let here = Cpu::get();
        if here.aesni.is_some() {
            all.push(here.without_avx512());
        }
        if here.amx.is_some() {
            all.push(here.without_amx());
        }
        if here.ifma.is_some() || here.vaes.is_some() {
            all.push(here);
        } else {
            println!("skipped: avx512-ifma");
        }
        all
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Cpu {
        let aesni = is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse2");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let ifma = avx512
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("avx512vbmi");
        let amx = ifma && amx::permitted();
        let vaes = avx512 && aesni && is_x86_feature_detected!("vaes");
        Cpu {
            ifma: ifma.then_some(HaveIfma(())),
            amx: amx.then_some(HaveAmx(())),
            vaes: vaes.then_some(HaveVaes(())),
            aesni: aesni.then_some(HaveAesni(())),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Cpu {
        Cpu::portable()
    }
}
