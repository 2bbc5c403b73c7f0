import { useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Button, Check, Field, Input, Select } from '../components/controls.tsx';
import { Card } from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { changeDraft, type Draft, type FilterEntry, type DraftProps, type ParamDraft } from './draft.ts';

/** Returns the account's apps for the filter; none if there are too many for one response. */
function useApps(): AnswerOf<'/api/data/v1/apps.json'>['apps'] {
  const { data } = useLoaded(
    (signal) => callApi('/api/data/v1/apps.json', { callArguments: { limit: '1000' }, signal }),
    [],
  );
  return data === undefined || data.total > data.apps.length ? [] : data.apps;
}

const maxShownChoices = 12;

interface ValuesProps {
  readonly entry: FilterEntry;
  readonly values: readonly string[];
  readonly onChange: (values: readonly string[]) => void;
}

interface ChoicesProps extends ValuesProps {
  readonly choices: Readonly<Record<string, string>>;
}

/** Selects values of a dictionary; a long one has a search. */
function Choices({ entry, choices, values, onChange }: ChoicesProps) {
  const [search, setSearch] = useState('');
  // A selected value without a title must stay visible, since it affects the rows.
  const untitled = values.filter((id) => choices[id] === undefined).map((id) => [id, ''] as const);
  const all = [...Object.entries(choices), ...untitled];
  // Short lists keep their order; long ones are sorted by title.
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
          <Check
            key={id}
            type={isOne ? 'radio' : 'checkbox'}
            name={`filter-${entry.name}`}
            checked={values.includes(id)}
            onChange={({ currentTarget: { checked } }) =>
              onChange(isOne ? [id] : checked ? [...values, id] : values.filter((each) => each !== id))
            }
            label={
              <>
                {title === '' ? id : title} {title !== '' && <span class="muted small">{id}</span>}
              </>
            }
          />
        ))}
      </div>
      {found.length > shown.length && (
        <p class="muted small">{found.length - shown.length} more. Search to find them.</p>
      )}
    </div>
  );
}

/** Edits typed values: ids separated by commas or spaces, or one text per line. */
function Typed({ entry, values, onChange }: ValuesProps) {
  const separator = entry.isText ? /\n/ : /[\s,]+/;
  const [text, setText] = useState(values.join(entry.isText ? '\n' : ', '));
  const onInput = ({ currentTarget: { value } }: { readonly currentTarget: { readonly value: string } }): void => {
    setText(value);
    onChange(
      value
        .split(separator)
        .map((each) => each.trim())
        .filter((each) => each !== ''),
    );
  };
  const shared = { 'aria-label': entry.name, value: text, onInput };
  return entry.isText ? (
    <textarea {...shared} placeholder="One value per line" rows={3} />
  ) : (
    <input {...shared} inputMode="numeric" placeholder="Ids, such as 12, 15" />
  );
}

const without = <T,>(members: Readonly<Record<string, T>>, name: string): Readonly<Record<string, T>> =>
  Object.fromEntries(Object.entries(members).filter(([each]) => each !== name));

function RemoveButton({ what, onClick }: { readonly what: string; readonly onClick: () => void }) {
  return (
    <Button kind="plain small" onClick={onClick}>
      Remove<span class="hidden"> {what}</span>
    </Button>
  );
}

function Params({ params }: { readonly params: readonly ParamDraft[] }) {
  const change = (place: number, changed: Partial<ParamDraft>): void =>
    changeDraft({ params: params.map((param, index) => (index === place ? { ...param, ...changed } : param)) });
  return (
    <>
      {params.map(({ name, values }, place) => (
        // The rows have no unique names while they are edited.
        <fieldset class="filter" key={place}>
          <legend class="hidden">Filter on a parameter</legend>
          <div class="columns-2">
            <Input
              label="Parameter"
              value={name}
              placeholder="level"
              onInput={(event) => change(place, { name: event.currentTarget.value })}
            />
            <Field label="Is one of (one value per line)">
              <textarea
                rows={1}
                value={values.join('\n')}
                onInput={(event) => change(place, { values: event.currentTarget.value.split('\n') })}
              />
            </Field>
          </div>
          <RemoveButton
            what={`the filter on ${name || 'a parameter'}`}
            onClick={() => changeDraft({ params: params.filter((_, index) => index !== place) })}
          />
        </fieldset>
      ))}
    </>
  );
}

/** Lists the arguments of a repeated export that the form has no field for. */
function Others({ others }: { readonly others: Draft['others'] }) {
  return (
    <>
      {Object.entries(others).map(([name, value]) => (
        <p key={name} class="spread">
          <span>
            <code>{name}</code> {String(value)}
          </span>
          <RemoveButton what={name} onClick={() => changeDraft({ others: without(others, name) })} />
        </p>
      ))}
    </>
  );
}

/** Edits the filters that the event has. */
export function FiltersField({ draft, dictionary }: DraftProps) {
  const apps = useApps();
  const { filters, params, event, others } = draft;
  const fitting = dictionary.events.find(({ name }) => name === event)?.filters ?? [];
  const entries = dictionary.filters.filter(({ name }) => fitting.includes(name));
  const added = entries.filter(({ name }) => filters[name] !== undefined);
  const open = entries.filter(({ name }) => filters[name] === undefined);
  const set = (name: string, values: readonly string[]): void =>
    changeDraft({ filters: { ...filters, [name]: values } });
  const appChoices = Object.fromEntries(apps.map(({ idApp, title }) => [idApp, title]));

  function add(name: string): void {
    if (name === 'params') changeDraft({ params: [...params, { name: '', values: [] }] });
    else if (name !== '') set(name, []);
  }

  return (
    <Card
      id="filters-title"
      title="Filters"
      beside={
        <Select
          label="Add a filter"
          kind="hidden inline"
          value=""
          onChange={(change) => add(change.currentTarget.value)}
          choices={[
            ['', 'Add a filter…'],
            ...open.map(({ name, meaning }) => [name, `${name}: ${meaning}`] as const),
            ...(fitting.includes('eventName') ? [['params', 'params: A parameter of the custom event.'] as const] : []),
          ]}
        />
      }
    >
      {added.length === 0 && params.length === 0 && (
        <p class="muted">No filters: the export has all rows of the period, from all apps of your account.</p>
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
            <RemoveButton
              what={`the filter ${name}`}
              onClick={() => changeDraft({ filters: without(filters, name) })}
            />
          </fieldset>
        );
      })}
      <Params params={params} />
      <Others others={others} />
    </Card>
  );
}
