import { useState } from 'preact/hooks';
import type { Arrival } from './listen.ts';

/** A thing that was wrong with a refused request. */
export interface Fault {
  readonly pointer: string;
  readonly reason: string;
  readonly hint?: string;
}

/** One line of the page. */
export interface Entry {
  readonly id: number;
  readonly kind: 'event' | 'refusal';
  /** Unix milliseconds. */
  readonly atMs: number;
  /** What it is: the kind of event, or the method and status that was answered. */
  readonly title: string;
  /** The rest of it in a few words: whose event, or why it was refused. */
  readonly about: string;
  readonly faults: readonly Fault[];
  /** As it came, for whoever opens the line; of a refusal the excerpt. */
  readonly body: string;
  /** The lines of `body` that have an offending field. */
  readonly marked: ReadonlySet<number>;
  /** What a filter looks at, in lower case. */
  readonly text: string;
}

type Data = Arrival['data'];

const textOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';

/** JSON over several lines; what is none, such as an excerpt that was cut, as it is. */
function spread(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

/** The names of fields that faults point to: of `/3/params/level` those of each step that is no place in a list. */
function namesOf(faults: readonly Fault[]): Set<string> {
  const steps = faults.flatMap(({ pointer }) => pointer.split('/').slice(1, 4));
  return new Set(
    steps.filter((step) => !/^\d*$/.test(step)).map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')),
  );
}

function findMarked(body: string, faults: readonly Fault[]): Set<number> {
  const starts = [...namesOf(faults)].map((name) => `${JSON.stringify(name)}:`);
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
    faults: [],
    body,
    marked: new Set(),
    text: body.toLowerCase(),
  };
}

function toRefusal(id: number, data: Data): Entry {
  const faults = Array.isArray(data['faults']) ? (data['faults'] as Fault[]) : [];
  const body = spread(textOf(data['excerpt']));
  const requests = Number(data['requests'] ?? 1);
  const times = requests > 1 ? ` · ${requests} requests alike` : '';
  return {
    id,
    kind: 'refusal',
    atMs: Date.parse(textOf(data['time'])),
    title: `${textOf(data['method'])} ${textOf(data['status'])}`,
    about: `${textOf(data['detail'])}${times}`,
    faults,
    body,
    marked: findMarked(body, faults),
    text: JSON.stringify(data).toLowerCase(),
  };
}

let made = 0;

/** Makes a line of what arrived. */
export function toEntry({ name, data }: Arrival): Entry {
  made += 1;
  return name === 'refusal' ? toRefusal(made, data) : toEvent(made, data);
}

/** Lines that are kept, the newest. */
export const mostEntries = 300;

/** Which lines are shown. */
export interface Filter {
  readonly kind: 'all' | Entry['kind'];
  /** In lower case. */
  readonly text: string;
}

/** Those of the entries that are wanted. */
export function select(entries: readonly Entry[], { kind, text }: Filter): readonly Entry[] {
  return entries.filter((entry) => (kind === 'all' || entry.kind === kind) && entry.text.includes(text));
}

const clock = { hour: '2-digit', minute: '2-digit', second: '2-digit' } as const;
const time = new Intl.DateTimeFormat(undefined, clock);
const dayAndTime = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', ...clock });
const recentMs = 12 * 3_600_000;

/** When it came; with the day where it is not of the last hours, as refusals of before may be. */
function Time({ atMs }: Pick<Entry, 'atMs'>) {
  const format = Date.now() - atMs < recentMs ? time : dayAndTime;
  return (
    <time class="muted small number" dateTime={new Date(atMs).toISOString()}>
      {format.format(atMs)}
    </time>
  );
}

/** The text of an event or a request, with the lines marked that have an offending field. */
function Body({ body, marked }: Entry) {
  return (
    <pre tabIndex={0} role="region" aria-label="As it came">
      {body
        .split('\n')
        .map((line, index) =>
          marked.has(index) ? <mark key={index}>{`${line}\n`}</mark> : <span key={index}>{`${line}\n`}</span>,
        )}
    </pre>
  );
}

function EntryLine({ entry }: { readonly entry: Entry }) {
  const { kind, title, about, faults, body } = entry;
  // Drawn when it is opened: hundreds of them may be large.
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
        {isOpen && isRefusal && faults.length > 0 && (
          <ul class="faults">
            {faults.map(({ pointer, reason, hint }) => (
              <li key={`${pointer} ${reason}`}>
                <code>{pointer === '' ? 'the request' : pointer}</code> {reason}
                {hint !== undefined && <span class="muted"> {hint}</span>}
              </li>
            ))}
          </ul>
        )}
        {isOpen && body === '' && <p class="muted small">Nothing of the body is kept: the operator decides what is.</p>}
        {isOpen && body !== '' && <Body {...entry} />}
      </details>
    </li>
  );
}

/** Lines of what arrived, the newest first. */
export function EntryList({ entries }: { readonly entries: readonly Entry[] }) {
  return (
    <ol class="entries" aria-label="Events and refusals, the newest first">
      {entries.map((entry) => (
        <EntryLine key={entry.id} entry={entry} />
      ))}
    </ol>
  );
}
