import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatCount, formatDate } from '../parts/format.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { SearchField } from '../parts/search-field.tsx';
import { ShareBar } from '../parts/share-bar.tsx';
import { loadCatalogue, type CatalogueEvent, type CatalogueKeys, type CatalogueParameter } from './catalogue.ts';

const dateOf = (time: string): string => formatDate(time.slice(0, 10));

function ParameterTable({
  looked,
  parameters,
}: {
  readonly looked: number;
  readonly parameters: readonly CatalogueParameter[];
}) {
  return (
    <div class="scroll tall parameters" tabIndex={0} role="region" aria-label="Parameters">
      <table>
        <thead>
          <tr>
            <th scope="col">Parameter</th>
            <th scope="col">Type</th>
            <th scope="col">In events</th>
            <th scope="col" class="number wide-only">
              Values
            </th>
            <th scope="col">Examples</th>
            <th scope="col" class="wide-only">
              First and last seen
            </th>
          </tr>
        </thead>
        <tbody>
          {parameters.map(({ name, type, untyped, seen, values, examples, firstSeen, lastSeen }) => (
            <tr key={name}>
              <td>
                <code>{name}</code>
              </td>
              <td>
                {type}
                {untyped > 0 && <div class="muted small">{formatCount(untyped)} of another</div>}
              </td>
              <td>
                <ShareBar share={looked === 0 ? 0 : seen / looked} />
              </td>
              <td class="number wide-only">about {formatCount(values)}</td>
              <td>
                {examples.length === 0 ? (
                  <span class="muted small">each sends its own</span>
                ) : (
                  <span class="examples">
                    {examples.map((example) => (
                      <code key={example}>{example === '' ? '(empty)' : example}</code>
                    ))}
                  </span>
                )}
              </td>
              <td class="wide-only nowrap small">
                {dateOf(firstSeen)} to {dateOf(lastSeen)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Parameters({ event }: { readonly event: CatalogueEvent }) {
  const [search, setSearch] = useState('');
  const { looked, sealed, parameters = [], moreParameters } = event;
  const found = parameters.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()));
  if (sealed === 0) return <p class="muted">None of its events is sealed yet.</p>;
  if (parameters.length === 0) return <p class="muted">Its events have no parameters.</p>;
  return (
    <>
      <div class="spread">
        <p class="muted small">
          Of {formatCount(looked)} events that were looked at, of {formatCount(sealed)} that are sealed, of all days.
        </p>
        <SearchField label="Find a parameter" onSearch={setSearch} />
      </div>
      {found.length === 0 ? (
        <p class="muted">No parameter has this in its name.</p>
      ) : (
        <ParameterTable looked={looked} parameters={found} />
      )}
      {moreParameters > 0 && <p class="muted small">{formatCount(moreParameters)} more parameters are not listed.</p>}
    </>
  );
}

/** What the events of one name have in their parameters. */
export function ParametersPart({ idApp, period, customEventName }: Required<CatalogueKeys>) {
  const { data, error, isLoading } = useLoaded(
    (signal) => loadCatalogue({ idApp, period, customEventName }, signal),
    [idApp, period, customEventName],
  );
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => heading.current?.focus(), []);
  const event = data?.customEvents[0];
  return (
    <div class="stack part" role="group" aria-labelledby="parameters">
      <h3 id="parameters" ref={heading} tabIndex={-1}>
        Parameters of {customEventName}
      </h3>
      {error && <Message kind="error">{error.message}</Message>}
      {isLoading && <p class="muted">Loading…</p>}
      {data !== undefined && event === undefined && <p class="muted">The catalogue has it no more.</p>}
      {event !== undefined && <Parameters event={event} />}
    </div>
  );
}
