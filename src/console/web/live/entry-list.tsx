import { useState } from 'preact/hooks';
import type { Entry } from './entries.ts';

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
