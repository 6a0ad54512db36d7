// Package prompt fills templates of prompts: text of the configuration with placeholders such as
// {prompt}, and the values of a sample.
//
// Parse cuts a text at its placeholders once, when a scorer is made, and refuses those
// that the scorer does not know: a slip of the keyboard would be sent as it is. Fill puts
// a sample's texts in, each bounded. What a placeholder stands for is put in as it is:
// braces in a prompt are no placeholders.
package prompt
