// Package jpeg.
package jpeg
