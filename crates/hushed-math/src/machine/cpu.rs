//! Processor features, detected once at run time.
//!
//! A kernel that uses an instruction set takes a token for it; only [`Cpu`] makes tokens, and only after detection. The
//! environment variable `HUSHED_DENY_AVX512=1`, read once, denies every kernel on 512-bit registers, so that tests and
//! reports can run what other machines run. `HUSHED_DENY_FMA=1` also denies those on floating-point multiply-adds,
//! which leaves the portable path; `HUSHED_DENY_AMX=1` denies only those on tiles.

#[cfg(target_arch = "x86_64")]
mod amx;

use std::sync::OnceLock;

/// Proof that AVX-512 F, DQ, VL, BW, IFMA and VBMI may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveIfma(());

/// Proof that AVX2 and FMA may be used, and perhaps AVX-512 F and DQ; or NEON.
#[derive(Clone, Copy, Debug)]
pub struct HaveFma {
    wide: bool,
}

impl HaveFma {
    /// Whether registers have 512 bits.
    pub fn wide(self) -> bool {
        self.wide
    }

    /// Numbers per register.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn lanes(self) -> usize {
        if self.wide { 8 } else { 4 }
    }
}

/// Proof that AMX byte tiles may be used: the operating system has granted their state.
#[derive(Clone, Copy, Debug)]
pub struct HaveAmx(());

/// Proof that VAES and carry-less products on 512-bit registers (with AVX-512 F, BW and AES-NI) may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveVaes(());

/// Proof that AES-NI and carry-less products (with SSSE3) may be used.
#[derive(Clone, Copy, Debug)]
pub struct HaveAesni(());

/// Proof that AES-NI and AVX2 (with POPCNT) may be used, and perhaps VAES on 256-bit registers.
#[derive(Clone, Copy, Debug)]
pub struct HaveWideAes {
    vaes: bool,
}

impl HaveWideAes {
    /// Whether an instruction takes two blocks.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn vaes(self) -> bool {
        self.vaes
    }
}

/// The instruction sets that kernels may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    ifma: Option<HaveIfma>,
    fma: Option<HaveFma>,
    amx: Option<HaveAmx>,
    vaes: Option<HaveVaes>,
    aesni: Option<HaveAesni>,
    wide_aes: Option<HaveWideAes>,
}

impl Cpu {
    /// This machine, detected on the first call.
    pub fn get() -> Cpu {
        static CPU: OnceLock<Cpu> = OnceLock::new();
        *CPU.get_or_init(|| {
            let denied = |name| std::env::var_os(name).is_some_and(|value| value == "1");
            let found = Cpu::detect();
            if denied("HUSHED_DENY_FMA") {
                found.without_fma()
            } else if denied("HUSHED_DENY_AVX512") {
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
        Cpu { ifma: None, fma: None, amx: None, vaes: None, aesni: None, wide_aes: None }
    }

    /// This processor with the kernels on 512-bit registers denied.
    pub fn without_avx512(self) -> Cpu {
        Cpu { ifma: None, fma: self.fma.map(|_| HaveFma { wide: false }), amx: None, vaes: None, ..self }
    }

    /// This processor with 52-bit multiply-adds and tiles denied.
    pub fn without_ifma(self) -> Cpu {
        Cpu { ifma: None, amx: None, ..self }
    }

    /// This processor with the kernels on multiply-adds of any kind denied.
    pub fn without_fma(self) -> Cpu {
        Cpu { fma: None, wide_aes: None, ..self.without_avx512() }
    }

    /// Token for the 52-bit multiply-add kernels.
    pub fn ifma(self) -> Option<HaveIfma> {
        self.ifma
    }

    /// Token for the floating-point multiply-add kernels, where there are no 52-bit ones.
    pub fn fma(self) -> Option<HaveFma> {
        self.fma.filter(|_| self.ifma.is_none())
    }

    /// This processor with the kernels on tiles denied.
    pub fn without_amx(self) -> Cpu {
        Cpu { amx: None, ..self }
    }

    /// Token for the byte-tile kernels; there is then one for IFMA too.
    pub fn amx(self) -> Option<HaveAmx> {
        self.amx
    }

    /// Token for the four-block AES kernels.
    pub fn vaes(self) -> Option<HaveVaes> {
        self.vaes
    }

    /// Token for AES on 256-bit registers.
    pub fn wide_aes(self) -> Option<HaveWideAes> {
        self.wide_aes
    }

    /// Token for the one-block AES kernels.
    pub fn aesni(self) -> Option<HaveAesni> {
        self.aesni
    }

    /// Name of the arithmetic kernel, for reports: `avx512-ifma`, `avx512-fma`, `avx2-fma`, `neon` or
    /// `portable`.
    pub fn kernel_name(self) -> &'static str {
        match (self.ifma, self.fma) {
            (Some(_), _) => "avx512-ifma",
            (None, Some(HaveFma { wide: true })) => "avx512-fma",
            (None, Some(HaveFma { wide: false })) if cfg!(target_arch = "aarch64") => "neon",
            (None, Some(HaveFma { wide: false })) => "avx2-fma",
            (None, None) => "portable",
        }
    }

    /// This processor, then with more and more kernels denied, down to none: one per kernel name, for measurements.
    pub fn kernels() -> Vec<Cpu> {
        let here = Cpu::get();
        let mut all = vec![here, here.without_ifma(), here.without_avx512(), here.without_fma()];
        all.dedup_by_key(|cpu| cpu.kernel_name());
        all
    }

    /// Every variant that this machine can run, for tests that compare them; portable first.
    #[cfg(test)]
    pub(crate) fn variants() -> Vec<Cpu> {
        let mut all = vec![Cpu::portable()];
        let here = Cpu::get();
        if here.aesni.is_some() {
            all.push(here.without_fma());
        }
        match here.fma {
            Some(fma) => {
                all.push(here.without_avx512());
                if here.wide_aes.is_some_and(|have| have.vaes) {
                    all.push(Cpu { wide_aes: Some(HaveWideAes { vaes: false }), ..here.without_avx512() });
                }
                if fma.wide {
                    all.push(here.without_ifma());
                }
            }
            None => println!("skipped: avx2-fma"),
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
        let aesni = is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("pclmulqdq");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let ifma = avx512
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("avx512vbmi");
        let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let wide = avx512 && is_x86_feature_detected!("avx512dq");
        let amx = ifma && amx::permitted();
        let vaes = avx512 && aesni && is_x86_feature_detected!("vaes") && is_x86_feature_detected!("vpclmulqdq");
        let wide_aes = aesni && fma && is_x86_feature_detected!("popcnt");
        let two = HaveWideAes { vaes: is_x86_feature_detected!("vaes") };
        Cpu {
            ifma: ifma.then_some(HaveIfma(())),
            fma: fma.then_some(HaveFma { wide }),
            amx: amx.then_some(HaveAmx(())),
            vaes: vaes.then_some(HaveVaes(())),
            aesni: aesni.then_some(HaveAesni(())),
            wide_aes: wide_aes.then_some(two),
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn detect() -> Cpu {
        Cpu { fma: Some(HaveFma { wide: false }), ..Cpu::portable() }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn detect() -> Cpu {
        Cpu::portable()
    }
}
