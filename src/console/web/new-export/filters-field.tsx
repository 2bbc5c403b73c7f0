import type { TargetedKeyboardEvent } from 'preact';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Select } from '../components/controls.tsx';
import { formatCount } from '../components/format.ts';
import { Card } from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { changeDraft, type Draft, type FilterEntry, type DraftProps } from './draft.ts';
import { useKnownNames, type KnownName } from './known-values.ts';
import { ParamFilters } from './param-filters.tsx';
import { Choices, RemoveButton, Typed, type Suggestion } from './value-fields.tsx';

/** Returns the account's apps for the filter; none if there are too many for one response. */
function useApps(): AnswerOf<'/api/data/v1/apps.json'>['apps'] {
  const { data } = useLoaded(
    (signal) => callApi('/api/data/v1/apps.json', { callArguments: { limit: '1000' }, signal }),
    [],
  );
  return data === undefined || data.total > data.apps.length ? [] : data.apps;
}

const without = <T,>(members: Readonly<Record<string, T>>, name: string): Readonly<Record<string, T>> =>
  Object.fromEntries(Object.entries(members).filter(([each]) => each !== name));

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

const toSuggestion = ({ name, events }: KnownName): Suggestion => ({ value: name, note: formatCount(events) });

type FilterChoice = readonly [name: string, meaning: string];

const ofEvent = ({ name }: FilterEntry): boolean => name.startsWith('eventName');
const ofPerson = ({ isPerson }: FilterEntry): boolean => isPerson === true;
const toChoice = ({ name, meaning }: FilterEntry): FilterChoice => [name, meaning];

/** Groups the filters that can be added. */
function groupFilters(
  open: readonly FilterEntry[],
  hasParams: boolean,
): readonly (readonly [title: string, filters: readonly FilterChoice[]])[] {
  const params: readonly FilterChoice[] = hasParams ? [['params', 'A parameter of the custom event.']] : [];
  return [
    ['Event', [...open.filter(ofEvent).map(toChoice), ...params]],
    ['Person or device', open.filter(ofPerson).map(toChoice)],
    ['Other', open.filter((entry) => !ofEvent(entry) && !ofPerson(entry)).map(toChoice)],
  ];
}

interface AddFilterProps {
  /** Filters that are not added yet. */
  readonly open: readonly FilterEntry[];
  readonly hasParams: boolean;
  readonly onAdd: (name: string) => void;
}

/** Opens the list at a key that would change the choice of the closed list, and so add a filter at each key. */
function openAt(event: TargetedKeyboardEvent<HTMLSelectElement>): void {
  const list = event.currentTarget;
  const isChange = event.key.length === 1 || event.key.startsWith('Arrow');
  if (!isChange || event.ctrlKey || !CSS.supports('selector(:open)') || list.matches(':open')) return;
  event.preventDefault();
  list.showPicker();
}

function AddFilter({ open, hasParams, onAdd }: AddFilterProps) {
  return (
    <Select
      label="Add a filter"
      kind="hidden inline"
      value=""
      onKeyDown={openAt}
      onChange={(change) => onAdd(change.currentTarget.value)}
    >
      <option value="">Add a filter…</option>
      {groupFilters(open, hasParams).map(
        ([title, group]) =>
          group.length > 0 && (
            <optgroup key={title} label={title}>
              {group.map(([name, meaning]) => (
                <option key={name} value={name}>
                  {name}: {meaning}
                </option>
              ))}
            </optgroup>
          ),
      )}
    </Select>
  );
}

/** Edits the filters that the event has. */
export function FiltersField({ draft, dictionary, activity }: DraftProps) {
  const apps = useApps();
  const names = useKnownNames(draft, activity);
  const { filters, params, event, others } = draft;
  const fitting = dictionary.events.find(({ name }) => name === event)?.filters ?? [];
  const entries = dictionary.filters.filter(({ name }) => fitting.includes(name));
  const added = entries.filter(({ name }) => filters[name] !== undefined);
  const open = entries.filter(({ name }) => filters[name] === undefined);
  const set = (name: string, values: readonly string[]): void =>
    changeDraft({ filters: { ...filters, [name]: values } });
  const appChoices = Object.fromEntries(apps.map(({ idApp, title }) => [idApp, title]));

  function add(name: string): void {
    if (name === 'params') changeDraft({ params: [...params, { name: '', comparison: 'params', values: [] }] });
    else if (name !== '') set(name, []);
  }

  return (
    <Card
      id="filters-title"
      title="Filters"
      beside={<AddFilter open={open} hasParams={fitting.includes('eventName')} onAdd={add} />}
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
              <Typed
                entry={entry}
                values={values}
                suggestions={name === 'eventName' ? names.map(toSuggestion) : []}
                onChange={(changed) => set(name, changed)}
              />
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
      {params.length > 0 && <ParamFilters draft={draft} activity={activity} names={names} />}
      <Others others={others} />
    </Card>
  );
}
