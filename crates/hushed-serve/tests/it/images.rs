//! Images over TLS on loopback: labels as in the clear, and requests that no image makes.

use std::fs;

use crate::common::Running;
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_golden};
use hushed_model::{ImageError, Model, Pixels, cosine, largest};
use hushed_serve::{Options, ServeError, Server, ServerConfig, TooLong};

const FILES: [&str; 6] = ["wide.png", "same.png", "gray.png", "palette.png", "alpha.png", "full.jpg"];

fn images(model: &Model) -> Vec<Pixels> {
    let file = |name| fs::read(tiny_golden("vit").join("images").join(name)).unwrap();
    let read = |name| model.public.image(&file(name)).unwrap();
    FILES.map(read).to_vec()
}

#[test]
fn labels_are_those_of_the_clear_model() {
    let folder = tiny_golden("vit");
    let model = Model::load(&folder).unwrap();
    let server = Running::start(|c| c.model = folder);
    let images = images(&model);
    let clear = model.embed(images.clone()).unwrap();
    let mut client = server.connect().unwrap();
    for batch in [1, 4] {
        let mut found = Vec::new();
        client
            .classify_images_each(&images, batch, None, |index, answer| {
                assert_eq!((answer.tokens, answer.rows), (17, 17));
                assert_eq!(answer.pass.first, index / batch * batch);
                found.push(answer.values.name().to_owned());
            })
            .unwrap();
        let names = model.public.labels().unwrap();
        let expected = clear.iter().map(|logits| &names[largest(logits) as usize]);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
    // Texts, and no images at all, cost nothing.
    let text = client.classify_each(&["a"], TooLong::Refuse, None, |_, _| ());
    assert!(matches!(text, Err(ServeError::Text { index: 0, .. })));
    let none = client.classify_images_each(&images, 0, None, |_, _| ());
    assert!(matches!(none, Err(ServeError::EmptyOption { .. })));
    assert!(client.embed(&["a"], TooLong::Refuse, None).is_err());
    client.classify_images_each(&images[..1], 1, None, |_, _| ()).unwrap();
    client.close().unwrap();
}

#[test]
fn a_model_of_texts_takes_no_images() {
    let server = Running::start(|c| {
        c.model = c.model.join("classifier");
        tiny_classifier_folder(&c.model, &TINY_LABELS).unwrap();
    });
    let images = images(&Model::load(&tiny_golden("vit")).unwrap());
    let mut client = server.connect().unwrap();
    let refused = client.classify_images_each(&images, 1, None, |_, _| ());
    let source = ImageError::NoImages;
    assert_eq!(refused.unwrap_err().to_string(), ServeError::Image { index: 0, source }.to_string());
    let options = Options::default();
    client.classify_each(&["a"], options, None, |_, _| ()).unwrap();
}

/// Limits below an image's rows, and a public table, are refused when a server starts.
#[test]
fn settings_that_images_do_not_have() {
    let bind = |change: fn(&mut ServerConfig)| {
        let certificates = tempfile::tempdir().unwrap();
        let mut config = ServerConfig::local(tiny_golden("vit"), certificates.path());
        change(&mut config);
        Server::bind(&config).map(|server| server.max_tokens())
    };
    assert_eq!(bind(|c| c.max_pass_tokens = 3).unwrap(), 17);
    for change in [(|c| c.max_tokens = Some(16)) as fn(&mut ServerConfig), |c| c.public_table = true] {
        let refused = bind(change);
        assert!(matches!(refused, Err(ServeError::NotForImages { .. })));
    }
}

/// Vectors of images, alone and several to a pass; a classifier gives none.
#[test]
fn vectors_are_those_of_the_clear_model() {
    let folder = tiny_golden("clip-vision-projection");
    let model = Model::load(&folder).unwrap();
    let server = Running::start(|c| c.model = folder);
    let images = images(&model);
    let clear = model.embed(images.clone()).unwrap();
    let mut client = server.connect().unwrap();
    for batch in [1, 4] {
        let mut found = Vec::new();
        client
            .embed_images_each(&images, batch, None, |index, answer| {
                assert_eq!((answer.tokens, answer.pass.first), (17, index / batch * batch));
                found.push(answer.values);
            })
            .unwrap();
        assert_eq!(found.len(), clear.len());
        assert!(found.iter().zip(&clear).all(|(a, b)| cosine(a, b) > 0.9999));
    }
    assert!(client.classify_images_each(&images, 1, None, |_, _| ()).is_err());
    client.close().unwrap();
    let server = Running::start(|c| c.model = tiny_golden("vit"));
    let mut client = server.connect().unwrap();
    assert!(client.embed_images_each(&images, 1, None, |_, _| ()).is_err());
}
