// Package htmlreport writes a report of scored samples as one HTML file: the distribution of the
// reward, the best and worst samples with pictures, failures, components and, if available, prompt
// groups and the trace of the step.
//
// The file is self-contained: it has no script, it contains its styles and pictures, and its
// Content-Security-Policy forbids the browser to load anything else. The file can be sent to other
// people unchanged.
//
// Texts come from trainers, models and untrusted sources. The template escapes them, they are
// shortened to a limited length, and they cannot widen the page. Pictures are small JPEG files that
// are encoded from decoded pixels, never bytes of a sample; a report contains at most 96 of them.
package htmlreport
