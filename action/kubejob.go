// SPDX-License-Identifier: Apache-2.0

package action

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// kubeName is a name of Kubernetes (RFC 1123 subdomain).
var kubeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

var kubeEvents = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// maxJobPods bounds the pods of a job, maxPodEvents the events of a pod.
const (
	maxJobPods   = 500
	maxPodEvents = 200
)

// KubePod asks Kubernetes for a pod, or for the pods of a Job of that name, and
// for its events, which outlive a deleted pod by an hour. With no kubeconfig it
// asks as the pod's service account. ErrNoJob: there is neither pod nor event.
func KubePod(ctx context.Context, kubeconfig, namespace, name string) (*Job, error) {
	if !kubeName.MatchString(namespace) || !kubeName.MatchString(name) {
		return nil, fmt.Errorf("job %q: want namespace/pod", namespace+"/"+name)
	}
	client, err := kubeClient(kubeconfig, "rackpulse-explain")
	if err != nil {
		return nil, err
	}
	j := &Job{ID: namespace + "/" + name, Name: name}
	pods := client.Resource(kubePods).Namespace(namespace)
	switch pod, err := pods.Get(ctx, name, metav1.GetOptions{}); {
	case err == nil:
		j.addPod(pod)
	case apierrors.IsNotFound(err):
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + name, Limit: maxJobPods})
		if err != nil {
			return nil, fmt.Errorf("kubernetes: list pods of job %s: %w", j.ID, err)
		}
		for i := range list.Items {
			j.addPod(&list.Items[i])
		}
		j.Ended = j.Ended || len(list.Items) == 0
	default:
		return nil, fmt.Errorf("kubernetes: pod %s: %w", j.ID, err)
	}
	if err := j.addEvents(ctx, client, namespace, name); err != nil {
		return nil, err
	}
	if len(j.Nodes) == 0 && len(j.Notes) == 0 {
		return nil, fmt.Errorf("kubernetes: pod %s: %w", j.ID, ErrNoJob)
	}
	return j, nil
}

// addPod adds what a pod tells; the first that failed gives the state.
func (j *Job) addPod(pod *unstructured.Unstructured) {
	text := func(fields ...string) string { return kubeText(pod, fields...) }
	j.addNode(text("spec", "nodeName"))
	if start := kubeWhen(text("status", "startTime")); !start.IsZero() && (j.Start.IsZero() || start.Before(j.Start)) {
		j.Start = start
	}
	phase, reason := text("status", "phase"), text("status", "reason")
	failed := phase == "Failed" || reason == "NodeLost"
	if !j.Failed && (failed || j.State == "") {
		j.State, j.Reason, j.Failed = cmp.Or(reason, phase), text("status", "message"), failed
	}
	if failed {
		j.note(j.Reason)
	}
	j.Ended = phase == "Failed" || phase == "Succeeded" || pod.GetDeletionTimestamp() != nil
	j.addContainers(pod)
	if at := pod.GetDeletionTimestamp(); at != nil && j.End.IsZero() {
		j.End = at.UTC()
	}
	j.addDisruption(pod)
}

// addContainers adds how the containers of a pod ended.
func (j *Job) addContainers(pod *unstructured.Unstructured) {
	statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, s := range statuses {
		status, _ := s.(map[string]any)
		for _, which := range []string{"state", "lastState"} {
			ended, found, _ := unstructured.NestedMap(status, which, "terminated")
			if !found {
				continue
			}
			code, _, _ := unstructured.NestedInt64(ended, "exitCode")
			why, _, _ := unstructured.NestedString(ended, "reason")
			at, _, _ := unstructured.NestedString(ended, "finishedAt")
			if end := kubeWhen(at); end.After(j.End) {
				j.End = end
			}
			if code != 0 {
				j.Failed = true
				j.note(fmt.Sprintf("container %v: %s, exit code %d", status["name"], why, code))
			}
		}
	}
}

// addDisruption adds that the control plane took a pod away, such as one of a
// node that it lost.
func (j *Job) addDisruption(pod *unstructured.Unstructured) {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == "DisruptionTarget" && m["status"] == "True" {
			at, _ := m["lastTransitionTime"].(string)
			if end := kubeWhen(at); j.End.IsZero() || end.Before(j.End) {
				j.End = end
			}
			j.Failed = true
			j.note(fmt.Sprintf("%v: %v", m["reason"], m["message"]))
		}
	}
}

func (j *Job) addNode(node string) {
	if node != "" && !slices.Contains(j.Nodes, node) && len(j.Nodes) < maxJobNodes {
		j.Nodes = append(j.Nodes, node)
	}
}

func (j *Job) note(text string) {
	if text = brief(text); text != "" && !slices.Contains(j.Notes, text) && len(j.Notes) < maxNotes {
		j.Notes = append(j.Notes, text)
	}
}

// kubeLost are events that say when a pod's work ended.
var kubeLost = []string{"Killing", "Evicted", "NodeNotReady", "TaintManagerEviction", "Preempted", "OOMKilling", "BackOff", "FailedMount"}

// addEvents adds the events of a pod: the node that wrote them, where the pod
// itself is gone, and the time of its end.
func (j *Job) addEvents(ctx context.Context, client dynamic.Interface, namespace, name string) error {
	list, err := client.Resource(kubeEvents).Namespace(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + name, Limit: maxPodEvents,
	})
	if apierrors.IsForbidden(err) {
		j.note("events of the pod may not be read")
		return nil
	}
	if err != nil {
		return fmt.Errorf("kubernetes: events of %s: %w", j.ID, err)
	}
	items := list.Items
	slices.SortStableFunc(items, func(a, b unstructured.Unstructured) int { return eventTime(&a).Compare(eventTime(&b)) })
	gone := len(j.Nodes) == 0
	for i := range items {
		j.addEvent(&items[i], gone)
	}
	return nil
}

// addEvent adds one event; gone says that there is no pod to ask any more.
func (j *Job) addEvent(e *unstructured.Unstructured, gone bool) {
	reason, host := kubeText(e, "reason"), kubeText(e, "source", "host")
	at, lost := eventTime(e), slices.Contains(kubeLost, reason)
	if gone {
		j.addNode(host)
	}
	if gone && j.Start.IsZero() && reason == "Started" {
		j.Start = at
	}
	if gone && lost {
		j.State, j.End, j.Ended = reason, at, true
	}
	if kubeText(e, "type") == "Warning" || lost {
		j.note(fmt.Sprintf("%s %s: %s", at.Format("15:04:05"), reason, kubeText(e, "message")))
	}
}

// eventTime is when an event was last seen.
func eventTime(e *unstructured.Unstructured) time.Time {
	for _, field := range []string{"lastTimestamp", "eventTime", "firstTimestamp"} {
		if t := kubeWhen(kubeText(e, field)); !t.IsZero() {
			return t
		}
	}
	return e.GetCreationTimestamp().UTC()
}

// kubeText is a text of an object; empty: there is none.
func kubeText(o *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, fields...)
	return s
}

// kubeWhen reads a time of the API; zero: there is none.
func kubeWhen(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
