import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Button, Check, Input } from '../components/controls.tsx';
import { formatCount } from '../components/format.ts';
import { Card } from '../components/layout.tsx';
import { changeDraft, columnsFor, type DraftProps, type SelectorEntry } from './draft.ts';

const groups: Readonly<Record<string, string>> = {
  event: 'Event',
  app: 'App',
  person: 'User',
  attribution: 'Attribution',
  device: 'Device',
  place: 'Location',
};

/** Lists the columns in their order. They can be moved with Alt and the arrow keys, dragged, and removed. */
function ChosenColumns({ chosen }: { readonly chosen: readonly string[] }) {
  const [dragged, setDragged] = useState<string>();
  const [announcement, setAnnouncement] = useState('');
  /** The column that the tab key leads to; arrow keys move between columns. */
  const [current, setCurrent] = useState<string>();
  const stop = current !== undefined && chosen.includes(current) ? current : chosen[0];
  const list = useRef<HTMLOListElement>(null);
  /** The column whose button gets the focus after the next rendering. */
  const wanted = useRef<string>();
  useLayoutEffect(() => {
    if (wanted.current === undefined) return;
    list.current?.querySelectorAll('button')[chosen.indexOf(wanted.current)]?.focus();
    wanted.current = undefined;
  }, [chosen]);

  function take(name: string, place: number): void {
    wanted.current = chosen[place + 1] ?? chosen[place - 1];
    changeDraft({ selectors: chosen.filter((each) => each !== name) });
    setAnnouncement(`${name} removed`);
  }

  function move(name: string, to: number): void {
    if (to < 0 || to >= chosen.length) return;
    const others = chosen.filter((each) => each !== name);
    changeDraft({ selectors: [...others.slice(0, to), name, ...others.slice(to)] });
    setAnnouncement(`${name} moved to column ${to + 1} of ${chosen.length}`);
  }

  function onKey(event: KeyboardEvent, name: string, place: number): void {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    if (!event.altKey) return list.current?.querySelectorAll('button')[place + step]?.focus();
    wanted.current = name;
    move(name, place + step);
  }

  return (
    <>
      <ol ref={list} class="chips" aria-label="Selected columns, in order">
        {chosen.map((name, place) => (
          <li
            key={name}
            class="chip column"
            draggable
            onDragStart={() => setDragged(name)}
            onDragOver={(event) => event.preventDefault()}
            onDrop={() => dragged !== undefined && move(dragged, place)}
          >
            <code>{name}</code>
            <button
              type="button"
              class="remove"
              aria-label={`Remove ${name}`}
              title="Remove. Arrow keys select a column, and move it with Alt"
              tabIndex={name === stop ? 0 : -1}
              onFocus={() => setCurrent(name)}
              onKeyDown={(event) => onKey(event, name, place)}
              onClick={() => take(name, place)}
            >
              ×
            </button>
          </li>
        ))}
      </ol>
      <span class="hidden" role="status">
        {announcement}
      </span>
    </>
  );
}

function matches({ name, title, meaning }: SelectorEntry, search: string): boolean {
  const text = `${name} ${title} ${meaning}`.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

const choose = (selectors: readonly string[]): void => changeDraft({ selectors });

interface GroupProps {
  readonly title: string;
  readonly entries: readonly SelectorEntry[];
  readonly chosen: readonly string[];
  readonly isOpen: boolean;
}

function Group({ title, entries, chosen, isOpen }: GroupProps) {
  const names = entries.map(({ name }) => name);
  const count = names.filter((name) => chosen.includes(name)).length;
  const isAll = count === names.length;
  const without = (others: readonly string[]): readonly string[] => chosen.filter((name) => !others.includes(name));
  return (
    <details class="group" open={isOpen}>
      <summary>
        <span>{title}</span>{' '}
        <span class="muted small">
          {count > 0 && `${formatCount(count)} of `}
          {formatCount(names.length)}
        </span>
      </summary>
      <div class="group-body">
        <Button kind="plain small" onClick={() => choose(isAll ? without(names) : [...new Set([...chosen, ...names])])}>
          {isAll ? 'Deselect all' : 'Select all'}
          <span class="hidden"> of {title}</span>
        </Button>
        <div class="checks">
          {entries.map(({ name, title: columnTitle, meaning }) => (
            <Check
              key={name}
              checked={chosen.includes(name)}
              onChange={(event) => choose(event.currentTarget.checked ? [...chosen, name] : without([name]))}
              label={
                <>
                  {columnTitle} <code class="muted">{name}</code>
                  <span class="muted small meaning">{meaning}</span>
                </>
              }
            />
          ))}
        </div>
      </div>
    </details>
  );
}

export function ColumnsField({ draft, dictionary, problem }: DraftProps) {
  const [search, setSearch] = useState('');
  const chosen = draft.selectors;
  const possible = new Set(dictionary.events.find(({ name }) => name === draft.event)?.selectors);
  const found = dictionary.selectors.filter((entry) => possible.has(entry.name) && matches(entry, search));
  const byGroup = Map.groupBy(found, ({ group }) => group);

  return (
    <Card
      id="columns-title"
      title="Columns"
      count={chosen.length}
      beside={
        <div class="row">
          <Button
            kind="plain small"
            onClick={() => {
              localStorage.removeItem(`tributary.columns.${draft.event}`);
              changeDraft({ selectors: columnsFor(draft.event, dictionary) });
            }}
          >
            Default columns
          </Button>
          <Button kind="plain small" onClick={() => changeDraft({ selectors: [] })}>
            Clear
          </Button>
        </div>
      }
    >
      {chosen.length > 0 && <ChosenColumns chosen={chosen} />}
      {problem !== undefined && <p class="problem">{problem}</p>}
      <Input
        label="Search columns"
        kind="hidden"
        type="search"
        placeholder="Search by name or meaning, such as country"
        value={search}
        onInput={(event) => setSearch(event.currentTarget.value)}
      />
      <div class="groups">
        {Object.entries(groups).map(([group, title]) => {
          const entries = byGroup.get(group) ?? [];
          return entries.length === 0 ? null : (
            <Group
              key={`${group}${search === '' ? '' : ' found'}`}
              title={title}
              entries={entries}
              chosen={chosen}
              isOpen={search !== '' || group === 'event'}
            />
          );
        })}
        {found.length === 0 && <p class="muted">No columns match.</p>}
      </div>
    </Card>
  );
}
