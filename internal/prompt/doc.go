// Package prompt fills templates of prompts: texts of the configuration with placeholders such as
// {prompt}, and the values of a sample.
//
// Parse splits a text at its placeholders once, when a scorer is created, and refuses unknown
// placeholders, because a typing error would be sent unchanged. Fill inserts the texts of a sample,
// each of limited length. Inserted texts are not parsed again: braces in a prompt are not
// placeholders.
package prompt
