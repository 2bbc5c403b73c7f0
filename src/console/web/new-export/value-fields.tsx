import { useState } from 'preact/hooks';
import { Button, Check } from '../components/controls.tsx';
import type { FilterEntry } from './draft.ts';

const maxShownChoices = 12;

/** Values to click, with their number of events. */
export interface Suggestion {
  readonly value: string;
  readonly note?: string;
}

interface ValuesProps {
  readonly entry: FilterEntry;
  readonly values: readonly string[];
  readonly onChange: (values: readonly string[]) => void;
}

interface ChoicesProps extends ValuesProps {
  readonly choices: Readonly<Record<string, string>>;
}

/** Selects values of a dictionary; a long one has a search. */
export function Choices({ entry, choices, values, onChange }: ChoicesProps) {
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

interface SuggestionsProps {
  readonly of: readonly Suggestion[];
  readonly values: readonly string[];
  readonly onToggle: (value: string) => void;
}

/** Lists values that can be added and removed by a click. */
export function Suggestions({ of, values, onToggle }: SuggestionsProps) {
  const [search, setSearch] = useState('');
  const wanted = search.toLowerCase();
  const found = of.filter(({ value }) => value.toLowerCase().includes(wanted));
  if (of.length === 0) return null;
  return (
    <div class="stack tight">
      {of.length > maxShownChoices && (
        <input
          type="search"
          aria-label="Search known values"
          placeholder={`Search ${of.length} known values`}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      )}
      <div class="chips" role="group" aria-label="Known values">
        {found.slice(0, maxShownChoices).map(({ value, note }) => (
          <button
            key={value}
            type="button"
            class="chip"
            aria-pressed={values.includes(value)}
            onClick={() => onToggle(value)}
          >
            {value} {note !== undefined && <span class="muted small">{note}</span>}
          </button>
        ))}
      </div>
    </div>
  );
}

/** Edits typed values: ids separated by commas or spaces, or one text per line. */
export function Typed({
  entry,
  values,
  suggestions = [],
  onChange,
}: ValuesProps & { readonly suggestions?: readonly Suggestion[] }) {
  const separator = entry.isText ? /\n/ : /[\s,]+/;
  const textOf = (of: readonly string[]): string => of.join(entry.isText ? '\n' : ', ');
  const [text, setText] = useState(textOf(values));
  const onInput = ({ currentTarget: { value } }: { readonly currentTarget: { readonly value: string } }): void => {
    setText(value);
    onChange(
      value
        .split(separator)
        .map((each) => each.trim())
        .filter((each) => each !== ''),
    );
  };
  const onToggle = (value: string): void => {
    const changed = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
    setText(textOf(changed));
    onChange(changed);
  };
  const shared = { 'aria-label': entry.name, value: text, onInput };
  return (
    <>
      {entry.isText ? (
        <textarea {...shared} placeholder="One value per line" rows={3} />
      ) : (
        <input {...shared} inputMode="numeric" placeholder="Ids, such as 12, 15" />
      )}
      <Suggestions of={suggestions} values={values} onToggle={onToggle} />
    </>
  );
}

export function RemoveButton({ what, onClick }: { readonly what: string; readonly onClick: () => void }) {
  return (
    <Button kind="plain small" onClick={onClick}>
      Remove<span class="hidden"> {what}</span>
    </Button>
  );
}
