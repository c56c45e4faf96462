package main

import (
	"context"
	"fmt"
	"os"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
)

// pull has the container runtime fetch an image, exactly as the kubelet would before it starts a
// pod: the runtime's other ways in keep a second copy of every layer.
func pull(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: cri-pull unix:///SOCKET IMAGE")
	}
	ctx := context.Background()
	images, err := criclient.NewRemoteImageService(ctx, arguments[0], 10*time.Second, nil, false)
	if err != nil {
		return err
	}
	reference, err := images.PullImage(ctx, &runtime.ImageSpec{Image: arguments[1]}, nil, nil)
	if err == nil {
		fmt.Fprintln(os.Stdout, reference)
	}
	return err
}
