import { useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { formatCount, formatDate } from '../parts/format.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { SearchField } from '../parts/search-field.tsx';
import { ShareBar } from '../parts/share-bar.tsx';
import { datesOf, nameOf, type Period } from './volume.ts';

type Fields = AnswerOf<'/api/data/v1/fields.json'>;

function FieldTable({ looked, fields }: Pick<Fields, 'looked' | 'fields'>) {
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label="How full each field is">
      <table>
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Filled</th>
            <th scope="col" class="number wide-only">
              Events
            </th>
            <th scope="col" class="wide-only">
              Meaning
            </th>
          </tr>
        </thead>
        <tbody>
          {fields.map(({ name, column, filled, description, type, default: value }) => (
            <tr key={column}>
              <td>
                <code title={`Column ${column}, ${type}`}>{name}</code>
              </td>
              <td>
                <ShareBar share={filled / looked} />
              </td>
              <td class="number wide-only">{formatCount(filled)}</td>
              <td class="muted small wide-only">
                {description}
                {value !== undefined && ` Counted where it is not ${value}, which is stored where none was sent.`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function describeBasis({ looked, dateFrom, dateTo, isWhole }: Fields): string {
  if (dateFrom === undefined || dateTo === undefined)
    return isWhole ? 'No events of this kind in these days.' : 'No events of this kind among the newest of these days.';
  const days = dateFrom === dateTo ? formatDate(dateFrom) : `${formatDate(dateFrom)} to ${formatDate(dateTo)}`;
  return `Counted in ${isWhole ? 'all' : 'the newest'} ${formatCount(looked)} events of ${days}.`;
}

/** How full the fields of a kind of event are. */
export function FieldsCard({
  idApp,
  period,
  kinds,
}: {
  readonly idApp: string;
  readonly period: Period;
  readonly kinds: readonly { readonly kind: string }[];
}) {
  const [chosen, setChosen] = useState<string>();
  const [search, setSearch] = useState('');
  const [showsEmpty, setShowsEmpty] = useState(false);
  const kind = kinds.some((each) => each.kind === chosen) ? chosen : kinds[0]?.kind;
  const { data, error, isLoading } = useLoaded(
    async (signal) =>
      kind === undefined
        ? undefined
        : await callApi('/api/data/v1/fields.json', { given: { idApp, kind, ...datesOf(period) }, signal }),
    [idApp, kind, period],
  );
  if (kind === undefined) return null;
  const wanted = search.toLowerCase();
  const found = (data?.fields ?? [])
    .filter(({ name, column, description }) =>
      [name, column, description].some((text) => text.toLowerCase().includes(wanted)),
    )
    .toSorted((a, b) => b.filled - a.filled);
  const empty = found.filter(({ filled }) => filled === 0).length;
  const shown = showsEmpty ? found : found.filter(({ filled }) => filled > 0);
  return (
    <section class="card stack" aria-labelledby="fields" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="fields">How full the fields are</h2>
        <div class="row">
          <label class="row">
            <span class="hidden">Kind of event</span>
            <select value={kind} onChange={(event) => setChosen(event.currentTarget.value)}>
              {kinds.map((each) => (
                <option key={each.kind} value={each.kind}>
                  {nameOf(each.kind)}
                </option>
              ))}
            </select>
          </label>
          <SearchField label="Find a field" onSearch={setSearch} />
        </div>
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Counting…</p>}
      {data !== undefined && <p class="muted small">{describeBasis(data)}</p>}
      {data !== undefined && data.looked > 0 && shown.length > 0 && <FieldTable looked={data.looked} fields={shown} />}
      {data !== undefined && data.looked > 0 && empty > 0 && (
        <label class="check small">
          <input type="checkbox" checked={showsEmpty} onChange={() => setShowsEmpty(!showsEmpty)} />
          <span>Show fields without any value, or with the default alone ({formatCount(empty)})</span>
        </label>
      )}
    </section>
  );
}
