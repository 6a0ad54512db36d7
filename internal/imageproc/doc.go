// Package imageproc converts a picture to the input of a vision model. Its results equal those of
// the Python image processors of Hugging Face and open_clip, byte for byte.
//
// A scorer has the frames of a sample as [rewards.Pixels], and the settings from the folder of its
// model. For the CLIP family the settings are a [Recipe] in the folder's scorer.json: resizes,
// crops and paddings, and a normalisation. [Recipe.Apply] runs the steps, and [Recipe.Tensor]
// arranges the bytes by channel. For vision-language models, [Idefics3] splits a picture into
// square tiles and [Qwen2VL] into patches, with the settings of Hugging Face's
// preprocessor_config.json. The result consists of bytes: the tensor has an [infer.Normalize], and
// the process that runs the model computes the floats, so that only a quarter of the data is
// transferred.
//
// All functions depend only on their arguments, have no goroutines and no state, and may be called
// concurrently. A picture with a side of more than 65,535 pixels, or one that would grow beyond
// 8192 pixels, is refused as [rewards.BadInput].
package imageproc
