import { useState } from 'preact/hooks';
import { formatCount, formatDate, formatTime } from '../parts/format.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { SearchField } from '../parts/search-field.tsx';
import { loadCatalogue, type Catalogue, type CatalogueEvent } from './catalogue.ts';
import { ParametersPart } from './parameters-part.tsx';
import type { Period } from './volume.ts';

const pageSize = 50;
const dateOf = (time: string): string => formatDate(time.slice(0, 10));

function EventTable({
  events,
  chosen,
  onChoose,
}: {
  readonly events: readonly CatalogueEvent[];
  readonly chosen: string | undefined;
  readonly onChoose: (name: string) => void;
}) {
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label="Custom events">
      <table>
        <thead>
          <tr>
            <th scope="col">Custom event</th>
            <th scope="col" class="number">
              Events
            </th>
            <th scope="col" class="wide-only">
              Last seen
            </th>
          </tr>
        </thead>
        <tbody>
          {events.map(({ customEventName: name, events: count, lastSeen }) => (
            <tr key={name} class={name === chosen ? 'chosen' : undefined}>
              <td>
                <button class="link" type="button" aria-pressed={name === chosen} onClick={() => onChoose(name)}>
                  {name}
                </button>
              </td>
              <td class="number">{formatCount(count)}</td>
              <td class="wide-only nowrap">{dateOf(lastSeen)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What may be worth a look: parameters that came, went or changed, volume that has fallen. */
function Notices({ notices }: Pick<Catalogue, 'notices'>) {
  if (notices.length === 0) return null;
  return (
    <details>
      <summary>Worth a look: {formatCount(notices.length)}</summary>
      <ul class="notices">
        {notices.map(({ id, date, customEventName, what }) => (
          <li key={id}>
            <span class="muted small nowrap">{formatDate(date)}</span>{' '}
            {customEventName !== undefined && <b>{customEventName}: </b>}
            {what}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** What the list counts, and what it lacks. */
function Remarks({
  catalogue: { version, more, missingFiles, isWhole, sealedUntil },
}: {
  readonly catalogue: Catalogue;
}) {
  return (
    <>
      {version === undefined && (
        <p class="muted small">
          Parameters are counted when events are sealed, which takes an hour or so after the first of them.
        </p>
      )}
      {version !== undefined && sealedUntil !== undefined && (
        <p class="muted small">
          Parameters are as of {formatTime(Date.parse(sealedUntil) / 1000)}: later events are counted, and not looked at
          yet.
        </p>
      )}
      {!isWhole && <p class="muted small">There are more events than were counted: the catalogue is being made.</p>}
      {more.names > 0 && (
        <p class="muted small">
          {formatCount(more.names)} more names, with {formatCount(more.events)} events, are not listed.
        </p>
      )}
      {missingFiles > 0 && (
        <p class="muted small">{formatCount(missingFiles)} files of events are not looked at yet.</p>
      )}
    </>
  );
}

/** The custom events of an app in the days of the chart, and of one of them the parameters. */
export function CatalogueCard({ idApp, period }: { readonly idApp: string; readonly period: Period }) {
  const { data, error, isLoading } = useLoaded((signal) => loadCatalogue({ idApp, period }, signal), [idApp, period]);
  const [search, setSearch] = useState('');
  const [chosen, setChosen] = useState<string>();
  const [shown, setShown] = useState(pageSize);
  const wanted = search.toLowerCase();
  const found = (data?.customEvents ?? []).filter(({ customEventName }) =>
    customEventName.toLowerCase().includes(wanted),
  );
  return (
    <section class="card stack" aria-labelledby="catalogue" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="catalogue">
          Custom events <span class="muted">{data === undefined ? '' : formatCount(data.customEvents.length)}</span>
        </h2>
        {(data?.customEvents.length ?? 0) > 0 && <SearchField label="Find a custom event" onSearch={setSearch} />}
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Loading…</p>}
      {data && (
        <>
          <Notices notices={data.notices} />
          {found.length > 0 && <EventTable events={found.slice(0, shown)} chosen={chosen} onChoose={setChosen} />}
          {data.customEvents.length > 0 && found.length === 0 && (
            <p class="muted">No custom event has this in its name.</p>
          )}
          {data.customEvents.length === 0 && <p class="muted">No custom events of this app in these days.</p>}
          {found.length > shown && (
            <button class="button small fit" type="button" onClick={() => setShown(shown + pageSize)}>
              Show {formatCount(Math.min(pageSize, found.length - shown))} more of {formatCount(found.length)}
            </button>
          )}
          <Remarks catalogue={data} />
        </>
      )}
      {chosen !== undefined && <ParametersPart key={chosen} idApp={idApp} period={period} customEventName={chosen} />}
    </section>
  );
}
