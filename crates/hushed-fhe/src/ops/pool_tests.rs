use super::*;

#[test]
fn what_is_not_a_reply_is_not_unpacked() {
    let layout = Interleave::new(64, 8).unwrap();
    let (width, lengths) = (21, [8, 1, 3, 8, 5, 2, 7]);
    let vectors = vec![vec![0.0; 64]; 3];
    assert_eq!(unpack(layout, &lengths, width, Factor::One, &vectors).unwrap(), vec![vec![0.0; width]; 7]);
    assert!(unpack(layout, &lengths, width, Factor::One, &vectors[1..]).is_err());
    assert!(unpack(layout, &[1; 9], width, Factor::One, &vectors).is_err());
    let short = vec![vec![0.0; 63]; 3];
    assert!(unpack(layout, &lengths, width, Factor::One, &short).is_err());
    for how in [Pool::Last, Pool::Max] {
        assert!(matches!(factor(how, true), Err(FheError::Unsupported { .. })));
    }
}
