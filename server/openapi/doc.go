// Package openapi writes an OpenAPI 3.1 document from descriptions of routes.
//
// A Route describes one route. The schemas of its bodies are derived from Go values of the types that the
// handlers read and write, by their tags for encoding/json; a body without its own type is an Object. Named
// types become schemas of the document under package and name, such as loop.PendingSample.
package openapi
