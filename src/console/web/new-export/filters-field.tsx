import { useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { useKeptFocus } from '../parts/kept-focus.ts';
import { useLoaded } from '../parts/load.ts';
import type { Dictionary, FilterEntry } from './dictionary.ts';
import { changeDraft, type Draft, type ParamDraft } from './draft.ts';

/** The apps of the account, for who chooses among them; their ids can be given without. */
function useApps(): AnswerOf<'/api/data/v1/apps.json'>['apps'] {
  const { data } = useLoaded((signal) => callApi('/api/data/v1/apps.json', { given: { limit: '1000' }, signal }), []);
  // Where there are more than one answer has, apps are named by their ids.
  return data === undefined || data.total > data.apps.length ? [] : data.apps;
}

const maxShownChoices = 12;

/** Values out of a dictionary; many are searched. */
function Choices({
  entry,
  choices,
  values,
  onChange,
}: {
  readonly entry: FilterEntry;
  readonly choices: Readonly<Record<string, string>>;
  readonly values: readonly string[];
  readonly onChange: (values: readonly string[]) => void;
}) {
  const [search, setSearch] = useState('');
  // A value that has no title any more is shown all the same, since it chooses rows.
  const untitled = values.filter((id) => choices[id] === undefined).map((id) => [id, ''] as const);
  const all = [...Object.entries(choices), ...untitled];
  // A short list has an order of its own; in a long one a title is looked for.
  if (all.length > maxShownChoices) all.sort(([, a], [, b]) => a.localeCompare(b));
  const wanted = search.toLowerCase();
  const found = all.filter(([id, title]) => `${id} ${title}`.toLowerCase().includes(wanted) || values.includes(id));
  const isOne = entry.shape === 'one';
  const shown = found
    .toSorted(([a], [b]) => Number(values.includes(b)) - Number(values.includes(a)))
    .slice(0, maxShownChoices);
  return (
    <div class="stack tight">
      {all.length > maxShownChoices && (
        <input
          type="search"
          aria-label={`Search values of ${entry.name}`}
          placeholder={`Search ${all.length} values`}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      )}
      <div class="checks">
        {shown.map(([id, title]) => (
          <label class="check" key={id}>
            <input
              type={isOne ? 'radio' : 'checkbox'}
              name={`filter-${entry.name}`}
              checked={values.includes(id)}
              onChange={(event) =>
                onChange(
                  isOne ? [id] : event.currentTarget.checked ? [...values, id] : values.filter((each) => each !== id),
                )
              }
            />
            <span>
              {title === '' ? id : title} {title !== '' && <span class="muted small">{id}</span>}
            </span>
          </label>
        ))}
      </div>
      {found.length > shown.length && <p class="muted small">{found.length - shown.length} more: search for them.</p>}
    </div>
  );
}

/** Values that are typed: ids with commas or spaces between, texts one a line. */
function Typed({
  entry,
  values,
  onChange,
}: {
  readonly entry: FilterEntry;
  readonly values: readonly string[];
  readonly onChange: (values: readonly string[]) => void;
}) {
  const separator = entry.isText ? /\n/ : /[\s,]+/;
  const [text, setText] = useState(values.join(entry.isText ? '\n' : ', '));
  const take = (typed: string): void => {
    setText(typed);
    onChange(
      typed
        .split(separator)
        .map((each) => each.trim())
        .filter((each) => each !== ''),
    );
  };
  return entry.isText ? (
    <textarea
      aria-label={entry.name}
      placeholder="One a line"
      rows={3}
      value={text}
      onInput={(event) => take(event.currentTarget.value)}
    />
  ) : (
    <input
      aria-label={entry.name}
      inputMode="numeric"
      placeholder="Ids, such as 12, 15"
      value={text}
      onInput={(event) => take(event.currentTarget.value)}
    />
  );
}

/** Filters on parameters of custom events. */
function Params({ params }: { readonly params: readonly ParamDraft[] }) {
  const change = (place: number, changed: Partial<ParamDraft>): void =>
    changeDraft({ params: params.map((param, index) => (index === place ? { ...param, ...changed } : param)) });
  return (
    <>
      {params.map(({ name, values }, place) => (
        // The rows have no names of their own while they are filled in.
        <fieldset class="filter" key={place}>
          <legend class="hidden">Filter on a parameter</legend>
          <div class="columns-2">
            <label class="field">
              <span>Parameter</span>
              <input
                value={name}
                placeholder="level"
                onInput={(event) => change(place, { name: event.currentTarget.value })}
              />
            </label>
            <label class="field">
              <span>Is one of (one a line)</span>
              <textarea
                rows={1}
                value={values.join('\n')}
                onInput={(event) => change(place, { values: event.currentTarget.value.split('\n') })}
              />
            </label>
          </div>
          <button
            type="button"
            class="button plain small"
            onClick={() => changeDraft({ params: params.filter((_, index) => index !== place) })}
          >
            Remove<span class="hidden"> the filter on {name || 'a parameter'}</span>
          </button>
        </fieldset>
      ))}
    </>
  );
}

/** What a repeated export was ordered with and the form has no field for. */
function Others({ others }: { readonly others: Draft['others'] }) {
  const without = (name: string): Draft['others'] =>
    Object.fromEntries(Object.entries(others).filter(([each]) => each !== name));
  return (
    <>
      {Object.entries(others).map(([name, value]) => (
        <p key={name} class="spread">
          <span>
            <code>{name}</code> {String(value)}
          </span>
          <button type="button" class="button plain small" onClick={() => changeDraft({ others: without(name) })}>
            Remove<span class="hidden"> {name}</span>
          </button>
        </p>
      ))}
    </>
  );
}

/** Which rows: only the filters that fit the event. */
export function FiltersField({ draft, dictionary }: { readonly draft: Draft; readonly dictionary: Dictionary }) {
  const apps = useApps();
  const kept = useKeptFocus();
  const { filters, params, event, others } = draft;
  const fitting = dictionary.events.find(({ name }) => name === event)?.filters ?? [];
  const entries = dictionary.filters.filter(({ name }) => fitting.includes(name));
  const added = entries.filter(({ name }) => filters[name] !== undefined);
  const open = entries.filter(({ name }) => filters[name] === undefined);
  const set = (name: string, values: readonly string[]): void =>
    changeDraft({ filters: { ...filters, [name]: values } });
  const without = (name: string): Draft['filters'] =>
    Object.fromEntries(Object.entries(filters).filter(([each]) => each !== name));
  const appChoices = Object.fromEntries(apps.map(({ idApp, title }) => [idApp, title]));

  function add(name: string): void {
    if (name === 'params') changeDraft({ params: [...params, { name: '', values: [] }] });
    else if (name !== '') set(name, []);
  }

  return (
    <section {...kept} class="card stack" aria-labelledby="filters-title">
      <div class="spread">
        <h2 id="filters-title" tabIndex={-1}>
          Filters
        </h2>
        <label class="field inline">
          <span class="hidden">Add a filter</span>
          <select value="" onChange={(change) => add(change.currentTarget.value)}>
            <option value="">Add a filter…</option>
            {open.map(({ name, meaning }) => (
              <option key={name} value={name}>
                {name}: {meaning}
              </option>
            ))}
            {fitting.includes('eventName') && <option value="params">params: A parameter of the custom event.</option>}
          </select>
        </label>
      </div>
      {added.length === 0 && params.length === 0 && (
        <p class="muted">Every row of the event in the period, of all apps of your account.</p>
      )}
      {added.map((entry) => {
        const { name, meaning } = entry;
        const values = filters[name] ?? [];
        const choices = name === 'idApp' && apps.length > 0 ? appChoices : entry.choices;
        return (
          <fieldset class="filter" key={name}>
            <legend>
              <code>{name}</code> <span class="muted small">{meaning}</span>
            </legend>
            {choices === undefined ? (
              <Typed entry={entry} values={values} onChange={(changed) => set(name, changed)} />
            ) : (
              <Choices entry={entry} choices={choices} values={values} onChange={(changed) => set(name, changed)} />
            )}
            <button type="button" class="button plain small" onClick={() => changeDraft({ filters: without(name) })}>
              Remove<span class="hidden"> the filter {name}</span>
            </button>
          </fieldset>
        );
      })}
      <Params params={params} />
      <Others others={others} />
    </section>
  );
}
