import type { IncomingMessage } from 'node:http';

/** A server-sent event as a client has it. */
export interface ServerSentEvent {
  readonly name: string;
  readonly id: string;
  readonly data: string;
}

/** Parses one block of an event stream by the HTML standard; undefined if it has no data. */
function parseBlock(block: string): ServerSentEvent | undefined {
  const fields = new Map<string, string[]>();
  for (const line of block.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    fields.set(name, [...(fields.get(name) ?? []), value]);
  }
  const data = fields.get('data');
  if (data === undefined) return undefined;
  return { name: fields.get('event')?.at(-1) ?? 'message', id: fields.get('id')?.at(-1) ?? '', data: data.join('\n') };
}

/** Reads a response of server-sent events; the list grows as they arrive. */
export function readEvents(answer: IncomingMessage): readonly ServerSentEvent[] {
  const events: ServerSentEvent[] = [];
  let text = '';
  answer.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
    const blocks = text.split(/\r\n\r\n|\n\n|\r\r/);
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const event = parseBlock(block);
      if (event !== undefined) events.push(event);
    }
  });
  answer.on('error', () => undefined);
  return events;
}
