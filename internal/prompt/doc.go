// Package prompt makes the texts that a model is asked with: what the configuration
// writes, with placeholders such as {prompt} in it, and what a sample puts in their place.
//
// Parse cuts a text at its placeholders once, when a scorer is made, and refuses those
// that the scorer does not know: a slip of the keyboard would be sent as it is. Fill puts
// a sample's texts in, each bounded. What a placeholder stands for is put in as it is:
// braces in a prompt are no placeholders.
package prompt
