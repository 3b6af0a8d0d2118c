//! Every decoder of foreign bytes, on seeds and seeded mutations of them, with edge cases by hand.

use hushed_model::testing::{mutations, tiny_folder};
use hushed_mpc::Answers;
use hushed_serve::fhe::wire::{self, CHUNK, Download, Failure, JobState, PART, Upload, frames};
use hushed_serve::session::wire::{
    Confirm, FheWelcome, Hello, IndexFacts, MAX_GREETING, PrefixFacts, PrefixKind, Reply, VERSION, Waiting, Welcome,
    WireFault,
};
use hushed_serve::twopc::wire::{
    Ahead, Answer, MAX_AHEAD, MAX_DRAFTS, MAX_PASS_TEXTS, MAX_REQUEST, MAX_TEMPERATURE, Next, Request, Search,
};
use hushed_serve::{Bundle, Digest, Refusal, ServeError, Token, fuzz};

fn hello() -> Hello {
    Hello {
        nonce: [1; 32],
        agreement: Digest([2; 32]),
        pinned: Some(Digest([3; 32])),
        token: Token::from_bytes(b"token"),
        patience: 600,
        looks: true,
        link: [40_000, u32::MAX],
    }
}

fn welcome() -> Welcome {
    Welcome {
        nonce: [4; 32],
        agreement: Digest([15; 32]),
        bundle: Digest([6; 32]),
        bundle_bytes: 7,
        max_tokens: 8,
        max_pass_tokens: 10,
        max_texts: 9,
        table: Some(Digest([8; 32])),
        index: Some(IndexFacts { documents: 11, record_bytes: 12, scores: true }),
        answers: Answers::Top(2),
        prefix: Some(PrefixFacts { tokens: 13, text: Digest([9; 32]), kind: PrefixKind::Text }),
        max_ahead: 14,
        max_drafts: 15,
    }
}

fn search() -> Search {
    Search { rows: 300, padded: true, public_table: false, top: 5, records: true, scores: true }
}

/// The next row of a text, whose products may have been made ahead.
fn next(ahead: bool) -> Request {
    Request::Next(Next {
        begins: false,
        rows: 1,
        padded: true,
        public_table: false,
        ahead,
        drafts: false,
        dropped: 0,
        temperature: 700,
        seed: 5,
        public: 0,
        long: false,
    })
}

/// The next row and its drafts, after some drafts that were wrong.
fn drafts(rows: u32, dropped: u16) -> Request {
    Request::Next(Next {
        begins: false,
        rows,
        padded: false,
        public_table: true,
        ahead: true,
        drafts: true,
        dropped,
        temperature: 0,
        seed: 6,
        public: 0,
        long: false,
    })
}

fn ahead(passes: u16) -> Request {
    Request::Ahead(Ahead { passes, rows: 7, padded: false, public_table: true })
}

fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::OtherVersion { server: 3 },
        Refusal::OtherAgreement { server: Digest([1; 32]) },
        Refusal::OtherBundle { server: Digest([2; 32]) },
        Refusal::NoToken,
        Refusal::BadToken,
        Refusal::TooManySessions { limit: 4 },
        Refusal::AboveOpenedBits { limit: 8 },
        Refusal::TooLong { limit: 5 },
        Refusal::TooManyTexts { limit: 6 },
        Refusal::PassTooLarge { limit: 7 },
        Refusal::PrivateTable,
        Refusal::NoLink,
        Refusal::Stopping,
        Refusal::OtherProtocol { fhe: true },
        Refusal::WrongSize,
        Refusal::WrongOffset,
        Refusal::Busy,
        Refusal::Quota { left: 8 },
        Refusal::TooManyUploads { limit: 9 },
        Refusal::DamagedUpload,
        Refusal::ExpiredKeys,
        Refusal::NotThere,
        Refusal::NoRoom,
        Refusal::QueueFull { limit: 10 },
        Refusal::NoReply,
        Refusal::OtherKeys,
        Refusal::Allowance { seconds: 11 },
        Refusal::AboveAllowance { limit: 12 },
        Refusal::Uncounted,
        Refusal::OtherTask { task: hushed_serve::Task::Generate },
        Refusal::NoIndex,
        Refusal::NoScores,
        Refusal::TooFarAhead { limit: 13 },
        Refusal::TooManyDrafts { limit: 14 },
        Refusal::Unknown { code: 999 },
    ]
}

fn request(rows: &[u32], padded: bool) -> Request {
    Request::Embed { rows: rows.to_vec(), padded, public_table: padded, ahead: padded }
}

fn fhe_welcome() -> FheWelcome {
    FheWelcome { nonce: [4; 32], plan: Digest([15; 32]), plan_bytes: 6, public: Digest([7; 32]), public_bytes: 8 }
}

fn requests() -> Vec<wire::Request> {
    let (a, b) = (Digest([1; 32]), Digest([2; 32]));
    vec![
        wire::Request::End,
        wire::Request::Offer { file: Upload::Keys(a), bytes: 3 << 30 },
        wire::Request::Put { file: Upload::Request(b), offset: 1 << 29, bytes: PART as u32 },
        wire::Request::Get { file: Download::Plan, offset: 0 },
        wire::Request::Get { file: Download::Public, offset: 7 },
        wire::Request::Get { file: Download::Reply(a), offset: 7 },
        wire::Request::Submit { keys: a, request: b },
        wire::Request::Status { job: a },
    ]
}

fn response() -> Vec<wire::Response> {
    let running = JobState::Running { layer: 2, of: 6, part: 1000, left: 4000 };
    vec![
        wire::Response::Have { bytes: 5 },
        wire::Response::Part { total: 1 << 40, bytes: 0 },
        wire::Response::Job(JobState::Unknown),
        wire::Response::Job(JobState::Queued { ahead: 1, left: 2 }),
        wire::Response::Job(running),
        wire::Response::Job(JobState::Done { bytes: 9 }),
        wire::Response::Job(JobState::Failed(Failure::Memory)),
    ]
}

fn corpus() -> Vec<Vec<u8>> {
    let bare = Hello { pinned: None, token: None, patience: 0, looks: false, ..hello() };
    let waiting = Waiting { position: 2, waiting: 3, seconds: 40 };
    let confirm = Confirm { tag: [7; 32], wants_bundle: true };
    let mut all = vec![
        vec![],
        hello().encode(),
        bare.encode(),
        Reply::Waiting(waiting).encode(),
        Reply::Welcome(welcome()).encode(),
        confirm.encode(),
        Request::End.encode(),
        Request::Table.encode(),
        Request::Search(search()).encode(),
        ahead(MAX_AHEAD).encode(),
        next(true).encode(),
        drafts(5, 3).encode(),
        next(false).encode(),
        request(&[16], false).encode(),
        request(&[16, 1, 128], true).encode(),
        Answer::Go.encode(),
    ];
    all.extend(refusals().iter().map(|r| Reply::Refused(*r).encode()));
    all.extend(refusals().iter().map(|r| Answer::Refused(*r).encode()));
    all.push(Reply::Fhe(fhe_welcome()).encode());
    all.extend(requests().iter().map(wire::Request::encode));
    all.extend(response().iter().map(wire::Response::encode));
    all.extend(refusals().iter().map(|r| wire::Response::Refused(*r).encode()));
    all
}

#[test]
fn control_messages_come_back() {
    assert!(Hello::decode(&hello().encode()) == Ok(hello()));
    for answers in [welcome().answers, Answers::Label, Answers::Logits, Answers::Bits(8), Answers::Above(300)] {
        let reply = Reply::Welcome(Welcome { answers, ..welcome() });
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
    for refusal in refusals() {
        let reply = Reply::Refused(refusal);
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        let answer = Answer::Refused(refusal);
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    let longest = Hello { token: Token::from_bytes(&[b'x'; 256]), ..hello() };
    assert!(longest.encode().len() <= MAX_GREETING);
    assert!(Hello::decode(&longest.encode()) == Ok(longest));
    for bytes in corpus() {
        for cut in 0..bytes.len() {
            assert!(Hello::decode(&bytes[..cut]).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        fuzz::control(&longer);
    }
}

#[test]
fn messages_about_runs_under_encryption_come_back() {
    let welcome = Reply::Fhe(fhe_welcome());
    assert_eq!(Reply::decode(&welcome.encode()), Ok(welcome));
    for request in requests() {
        let bytes = request.encode();
        assert!(bytes.len() <= wire::MAX_REQUEST);
        assert_eq!(wire::Request::decode(&bytes), Ok(request));
        for cut in 0..bytes.len() {
            assert!(wire::Request::decode(&bytes[..cut]).is_err());
        }
    }
    for response in response().into_iter().chain(refusals().into_iter().map(wire::Response::Refused)) {
        let bytes = response.encode();
        assert!(bytes.len() <= wire::MAX_RESPONSE);
        assert_eq!(wire::Response::decode(&bytes), Ok(response));
        for cut in 0..bytes.len() {
            assert!(wire::Response::decode(&bytes[..cut]).is_err());
        }
    }
    for failure in (1..=7).map(|code| wire::Response::decode(&[3, 4, code]).unwrap()) {
        let wire::Response::Job(JobState::Failed(failure)) = failure else {
            panic!("it is a failure");
        };
        assert_eq!(Failure::named(failure.name()), failure);
    }
    // A part of nothing or of too much, progress beyond the end, an unknown failure.
    let put = |bytes: u32| wire::Request::Put { file: Upload::Keys(Digest([0; 32])), offset: 0, bytes };
    for bytes in [0, PART as u32 + 1, u32::MAX] {
        assert!(wire::Request::decode(&put(bytes).encode()).is_err());
    }
    for (layer, of, part) in [(7, 6, 0), (0, 6, 1001)] {
        let state = JobState::Running { layer, of, part, left: 0 };
        assert!(wire::Response::decode(&wire::Response::Job(state).encode()).is_err());
    }
    assert!(wire::Response::decode(&[3, 4, 0]).is_err());
    for (part, expected) in [(0, vec![]), (1, vec![1]), (CHUNK as u64, vec![CHUNK]), (CHUNK as u64 + 1, vec![CHUNK, 1])]
    {
        assert_eq!(frames(part).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn impossible_fields_are_refused() {
    let fault = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = hello().encode();
        change(&mut bytes);
        Hello::decode(&bytes).err()
    };
    assert_eq!(fault(&|b| b[0] = b'h'), Some(WireFault::Magic));
    let got = VERSION + 1;
    assert_eq!(fault(&|b| b[4] += 1), Some(WireFault::Version { got }));
    let flags = WireFault::Undefined { field: "flags" };
    assert_eq!(fault(&|b| b[70] = 8), Some(flags));
    let token = Some(WireFault::Undefined { field: "token" });
    // A token of no bytes, of too many, and of characters that are not visible.
    assert_eq!(fault(&|b| b[113] = 0), token);
    assert_eq!(fault(&|b| b[114] = 2), token);
    assert_eq!(fault(&|b| b[115] = b' '), token);
    assert_eq!(fault(&|b| b.push(0)), Some(WireFault::Trailing));

    for answers in [Answers::Top(0), Answers::Top(101), Answers::Above(0), Answers::Above(1000)] {
        let reply = Reply::Welcome(Welcome { answers, ..welcome() });
        let fault = WireFault::Undefined { field: "answers" };
        assert_eq!(Reply::decode(&reply.encode()), Err(fault));
    }

    let undefined = |field| Err(WireFault::Undefined { field });
    let decode = |bytes: &[u8]| Request::decode(bytes);
    assert_eq!(decode(&[6]), undefined("tag"));
    for passes in [0, MAX_AHEAD + 1] {
        assert_eq!(decode(&ahead(passes).encode()), undefined("number of passes"));
    }
    let mut bytes = ahead(MAX_AHEAD).encode();
    assert_eq!(decode(&bytes), Ok(ahead(MAX_AHEAD)));
    bytes[1] = 4;
    assert_eq!(decode(&bytes), undefined("flags"));
    let mut bytes = ahead(1).encode();
    bytes[4] = 0;
    assert_eq!(decode(&bytes), undefined("number of tokens"));
    let later = next(true);
    assert_eq!(decode(&later.encode()), Ok(later));
    // Nothing is made ahead for a pass that begins a text or has two rows.
    for (at, byte) in [(1, 1 | 4 | 32), (2, 2)] {
        let mut bytes = next(true).encode();
        bytes[at] = byte;
        assert_eq!(decode(&bytes), undefined("flags"));
    }
    // Drafts belong to later passes and are few, and no more may be dropped than there were.
    let most = u32::from(MAX_DRAFTS);
    for (rows, dropped) in [(1, 0), (5, 3), (1 + most, MAX_DRAFTS)] {
        let pass = drafts(rows, dropped);
        assert_eq!(decode(&pass.encode()), Ok(pass));
    }
    assert_eq!(decode(&drafts(2 + most, 0).encode()), undefined("number of tokens"));
    let many = decode(&drafts(1, MAX_DRAFTS + 1).encode());
    assert_eq!(many, undefined("number of dropped tokens"));
    for (flags, dropped, field) in [(4 | 64, 0, "flags"), (128, 0, "flags"), (4, 1, "number of dropped tokens")] {
        let mut bytes = drafts(5, dropped).encode();
        bytes[1] = flags;
        assert_eq!(decode(&bytes), undefined(field));
    }
    let bytes = Request::Search(search()).encode();
    assert_eq!(decode(&bytes), Ok(Request::Search(search())));
    let wrong = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    assert_eq!(wrong(1, 4), undefined("flags"));
    assert_eq!(wrong(6, 0), undefined("number of documents"));
    assert_eq!(wrong(6, 101), undefined("number of documents"));
    assert!(decode(&bytes[..7]).is_err());
    let next = Request::Next(Next {
        begins: true,
        rows: 7,
        padded: false,
        public_table: true,
        ahead: false,
        drafts: false,
        dropped: 0,
        temperature: MAX_TEMPERATURE,
        seed: 1 << 63,
        public: 9,
        long: true,
    });
    let bytes = next.encode();
    assert_eq!(decode(&bytes), Ok(next.clone()));
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    assert_eq!(changed(1, 8), undefined("flags"));
    assert_eq!(changed(1, 2), undefined("number of public tokens"));
    assert_eq!(changed(2, 0), undefined("number of tokens"));
    assert_eq!(changed(6, 1), undefined("number of dropped tokens"));
    assert_eq!(changed(9, 8), undefined("temperature"));
    assert_eq!(decode(&[1, 4, 1, 0, 1, 0, 0, 0]), undefined("flags"));
    assert_eq!(decode(&[1, 0, 0, 0]), undefined("number of texts"));
    assert_eq!(decode(&[1, 0, 1, 1]), undefined("number of texts"));
    let zero = [1, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(decode(&zero), undefined("number of tokens"));
    assert_eq!(decode(&[0, 0]), Err(WireFault::Trailing));
    let longest = request(&[7; MAX_PASS_TEXTS], true);
    assert_eq!(longest.encode().len(), MAX_REQUEST);
    assert_eq!(decode(&longest.encode()), Ok(longest));
    assert!(Confirm::decode(&[2; 33]).is_err());
    assert!(Answer::decode(&[]).is_err());
}

/// Sizes in the configuration of a public model, behind hashes that fit: one at a time, then several at random.
#[test]
fn m2_no_edit_of_a_public_model_panics_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let bundle = Bundle::from_folder(folder.path()).unwrap();
    let mut corpus = vec![Vec::new()];
    for place in 0..40 {
        corpus.extend((0..9).map(|value| vec![place, 0, value]));
    }
    mutations(&corpus, 1_000, 5, |data| fuzz::public(bundle.bytes(), data));
}

#[test]
fn mutated_control_messages() {
    mutations(&corpus(), 10_000, 1, fuzz::control);
}

#[test]
fn mutated_files_of_tokens() {
    let hashed = format!("# two clients\r\n  {}\n\nsha256:{}\n", "a".repeat(16), "0f".repeat(32));
    let others = ["", "short\n", "sha256: \n", "0123456789abcdef\n0123456789abcdef"];
    let others = others.map(|text| text.as_bytes().to_vec());
    let corpus = [&[hashed.into_bytes()][..], &others].concat();
    mutations(&corpus, 10_000, 3, fuzz::tokens);
}

#[test]
fn mutated_tables() {
    // Five rows of three, as in the fuzz body; the second is out of range.
    let table: Vec<u8> = (0..15i32).flat_map(|i| (i << 24).to_le_bytes()).collect();
    let corpus = [table, vec![0x7f; 60], vec![0; 61], Vec::new()];
    mutations(&corpus, 10_000, 4, fuzz::table);
}

#[test]
fn bundles() {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let bundle = Bundle::from_folder(folder.path()).unwrap();
    let again = Bundle::from_bytes(bundle.bytes().to_vec()).unwrap();
    assert_eq!(again.hash(), bundle.hash());
    assert_eq!(again.public().max_tokens, 48);
    let file = folder.path().join("a.bundle");
    bundle.write(&file).unwrap();
    assert!(Bundle::read(&file).unwrap().bytes() == bundle.bytes());
    assert!(matches!(bundle.write(&folder.path().join("no/such/folder")), Err(ServeError::File { .. })));

    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bundle.bytes().to_vec();
        change(&mut bytes);
        Bundle::from_bytes(bytes).err().unwrap()
    };
    let bad = |error| matches!(error, ServeError::BadBundle { .. });
    assert!(bad(with(&|b| b[0] = 0)));
    assert!(bad(with(&|b| b[4] = 0)));
    assert!(bad(with(&|b| b[6] = 9)));
    assert!(matches!(with(&|b| b[8] ^= 1), ServeError::BundleOfOtherAgreement));
    assert!(bad(with(&|b| b[24] ^= 1)));
    assert!(bad(with(&|b| b.truncate(b.len() - 1))));
    assert!(bad(with(&|b| b.push(0))));
    assert!(bad(with(&|b| b.clear())));
    // A name that no model has.
    assert!(matches!(with(&|b| b[33] = b'0'), ServeError::Model(_)));

    // Around the bulk of the tokenizer, where the structure is.
    let head = bundle.bytes()[..400].to_vec();
    mutations(&[head, bundle.bytes().to_vec()], 10_000, 2, fuzz::bundle);
}

#[test]
fn digests_are_read_as_they_are_written() {
    let digest = Digest(std::array::from_fn(|i| i as u8 * 7));
    assert_eq!(digest.to_string().parse(), Ok(digest));
    assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
    for wrong in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
        assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
    }
}
