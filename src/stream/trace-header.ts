/**
 * The header of a message with the traces of its requests: contexts in W3C format (`traceparent`), comma-separated.
 *
 * Only messages with sampled requests have it. It is not a part of the hash of a message. Readers that do not know it
 * ignore it.
 */
import { headers, type MsgHdrs } from '@nats-io/transport-node';

const traceHeader = 'Tributary-Traceparent';
/** Traces of a message. With 55 characters each, they fit into the space that the stream allows for headers. */
export const maxTracesPerMessage = 16;

/** Adds the traces of a message to its headers, which may be absent; without traces, returns these. */
export function addTraces(to: MsgHdrs | undefined, traceparents: readonly string[] = []): MsgHdrs | undefined {
  if (traceparents.length === 0) return to;
  const rendered = to ?? headers();
  rendered.set(traceHeader, traceparents.slice(0, maxTracesPerMessage).join(','));
  return rendered;
}

/** Finds the traces of a message, unchecked; undefined if it has none. */
export function findTraces(readHeaders: () => MsgHdrs | undefined): readonly string[] | undefined {
  let traces: string | undefined;
  try {
    traces = readHeaders()?.get(traceHeader);
  } catch {
    // The client refuses malformed headers of other publishers.
    return undefined;
  }
  return traces === undefined || traces === '' ? undefined : traces.split(',', maxTracesPerMessage);
}
