package server

import (
	"sync"

	"github.com/gin-gonic/gin"
)

// releaseMode sets gin's mode, a variable of the process, once: servers of one process may start at the same time.
//
//nolint:gochecknoglobals // as gin's own
var releaseMode = sync.OnceFunc(func() { gin.SetMode(gin.ReleaseMode) })
