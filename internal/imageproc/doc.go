// Package imageproc turns a picture into the input of a vision model, byte for byte as the Python
// image processors of Hugging Face and open_clip do.
//
// The life of a picture: a scorer has the frames of a sample as [rewards.Pixels] and, from
// a model's folder, how the model wants them. For the CLIP family that is a [Recipe], read
// from the folder's scorer.json: resizes, crops and paddings, and a normalisation.
// [Recipe.Apply] runs the steps and [Recipe.Tensor] packs the bytes by channel. For the
// language models that see, [Idefics3] cuts a picture into square tiles and [Qwen2VL] into
// patches, as Hugging Face's preprocessor_config.json says. The result stays bytes: the tensor carries an [infer.Normalize], and the floats
// are made where the model runs, so that a quarter of the data travels.
//
// Everything here is a function of its arguments, without goroutines and without state:
// scorers run it side by side, and what counts is processor time. A picture
// with a side of more than 65,535 pixels, or one that would grow beyond 8192, is refused as
// [rewards.BadInput].
package imageproc
