import { useState } from 'preact/hooks';
import type { Arrival } from './listen.ts';

/** A validation error of a rejected request. */
export interface ValidationError {
  readonly pointer: string;
  readonly reason: string;
  readonly hint?: string;
}

/** A line of the page: an event or a rejected request. */
export interface Entry {
  readonly id: number;
  readonly kind: 'event' | 'refusal';
  readonly atMs: number;
  /** The kind of event, or the method and status of the response. */
  readonly title: string;
  /** The user of the event, or the reason of the rejection. */
  readonly about: string;
  readonly errors: readonly ValidationError[];
  /** The event, or an excerpt of the rejected body. */
  readonly body: string;
  /** Lines of `body` with an invalid field. */
  readonly marked: ReadonlySet<number>;
  /** Text for the filter, in lower case. */
  readonly text: string;
}

type Data = Arrival['data'];

const textOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';

/** Indents JSON; returns other texts, such as a truncated excerpt, unchanged. */
function spread(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

/** Returns the field names in the pointers of errors: for `/3/params/level` each step that is not an index. */
function namesOf(errors: readonly ValidationError[]): Set<string> {
  const steps = errors.flatMap(({ pointer }) => pointer.split('/').slice(1, 4));
  return new Set(
    steps.filter((step) => !/^\d*$/.test(step)).map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')),
  );
}

function findMarked(body: string, errors: readonly ValidationError[]): Set<number> {
  const starts = [...namesOf(errors)].map((name) => `${JSON.stringify(name)}:`);
  return new Set(
    body
      .split('\n')
      .flatMap((line, index) => (starts.some((start) => line.trimStart().startsWith(start)) ? [index] : [])),
  );
}

const subjects = ['custom_user_id', 'custom_platform_user_id', 'instance_id', 'lvid', 'sezam_user_id'];

function toEvent(id: number, data: Data): Entry {
  const name = textOf(data['custom_event_name']);
  const subject = subjects.map((field) => textOf(data[field])).find((text) => text !== '') ?? '';
  const body = JSON.stringify(data, undefined, 2);
  return {
    id,
    kind: 'event',
    atMs: Number(data['received_at']),
    title: textOf(data['kind']).replaceAll('_', ' '),
    about: [name, subject].filter((text) => text !== '').join(' · '),
    errors: [],
    body,
    marked: new Set(),
    text: body.toLowerCase(),
  };
}

function toRefusal(id: number, data: Data): Entry {
  const errors = Array.isArray(data['errors']) ? (data['errors'] as ValidationError[]) : [];
  const body = spread(textOf(data['excerpt']));
  const requests = Number(data['requests'] ?? 1);
  const times = requests > 1 ? ` · ${requests} similar requests` : '';
  return {
    id,
    kind: 'refusal',
    atMs: Date.parse(textOf(data['time'])),
    title: `${textOf(data['method'])} ${textOf(data['status'])}`,
    about: `${textOf(data['detail'])}${times}`,
    errors,
    body,
    marked: findMarked(body, errors),
    text: JSON.stringify(data).toLowerCase(),
  };
}

let made = 0;

export function toEntry({ name, data }: Arrival): Entry {
  made += 1;
  return name === 'refusal' ? toRefusal(made, data) : toEvent(made, data);
}

/** Maximum number of lines. */
export const maxEntries = 300;

export interface Filter {
  readonly kind: 'all' | Entry['kind'];
  /** In lower case. */
  readonly text: string;
}

export function filterEntries(entries: readonly Entry[], { kind, text }: Filter): readonly Entry[] {
  return entries.filter((entry) => (kind === 'all' || entry.kind === kind) && entry.text.includes(text));
}

const clock = { hour: '2-digit', minute: '2-digit', second: '2-digit' } as const;
const time = new Intl.DateTimeFormat(undefined, clock);
const dayAndTime = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', ...clock });
const recentMs = 12 * 3_600_000;

/** Shows the time of arrival, with the day if it is not recent. */
function Time({ atMs }: Pick<Entry, 'atMs'>) {
  const format = Date.now() - atMs < recentMs ? time : dayAndTime;
  return (
    <time class="muted small number" dateTime={new Date(atMs).toISOString()}>
      {format.format(atMs)}
    </time>
  );
}

/** Shows a body with its invalid lines marked. */
function Body({ body, marked }: Entry) {
  return (
    <pre tabIndex={0} role="region" aria-label="Body">
      {body
        .split('\n')
        .map((line, index) =>
          marked.has(index) ? <mark key={index}>{`${line}\n`}</mark> : <span key={index}>{`${line}\n`}</span>,
        )}
    </pre>
  );
}

function EntryLine({ entry }: { readonly entry: Entry }) {
  const { kind, title, about, errors, body } = entry;
  // Rendered when it is opened: hundreds of bodies may be large.
  const [isOpen, setOpen] = useState(false);
  const isRefusal = kind === 'refusal';
  return (
    <li class={`entry ${kind}`}>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <Time {...entry} />
          <span class={`badge ${isRefusal ? 'bad' : 'good'}`}>{title}</span>
          <span class="about">{about}</span>
        </summary>
        {isOpen && isRefusal && errors.length > 0 && (
          <ul class="faults">
            {errors.map(({ pointer, reason, hint }) => (
              <li key={`${pointer} ${reason}`}>
                <code>{pointer === '' ? 'the request' : pointer}</code> {reason}
                {hint !== undefined && <span class="muted"> {hint}</span>}
              </li>
            ))}
          </ul>
        )}
        {isOpen && body === '' && (
          <p class="muted small">The request body is not recorded (TRIBUTARY_REFUSALS_BODIES).</p>
        )}
        {isOpen && body !== '' && <Body {...entry} />}
      </details>
    </li>
  );
}

/** Lists entries, the newest first. */
export function EntryList({ entries }: { readonly entries: readonly Entry[] }) {
  return (
    <ol class="entries" aria-label="Events and rejected requests, newest first">
      {entries.map((entry) => (
        <EntryLine key={entry.id} entry={entry} />
      ))}
    </ol>
  );
}
