// Package openapi writes an OpenAPI 3.1 document of routes that are described one by one.
//
// A description is a Route. What its bodies look like follows from Go values of the types that the handlers read and
// write, by their tags for encoding/json; what has no type of its own is an Object. Names of types that are used are
// schemas of the document under package and name, such as loop.PendingSample.
package openapi
