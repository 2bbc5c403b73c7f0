/** Layout: messages, cards, tables, paged lists, dialogs and tabs. */
import type { ComponentChildren, ComponentType } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { hrefOf, path } from '../shell/browser.ts';
import { Button, SearchField } from './controls.tsx';
import { formatCount, formatShare } from './format.ts';
import type { Loaded } from './load.ts';

interface Children {
  readonly children?: ComponentChildren;
}

/** A message; errors are announced to screen readers. */
export function MessageBox({ kind, children }: Children & { readonly kind: 'error' | 'warning' | 'info' }) {
  return (
    <div class={`message ${kind}`} role={kind === 'error' ? 'alert' : undefined}>
      {children}
    </div>
  );
}

export function ErrorMessage({ error }: { readonly error: Error | undefined }) {
  return error === undefined ? null : <MessageBox kind="error">{error.message}</MessageBox>;
}

/** Shows the error of a missing response, or that it is loading. */
export function LoadingState({
  of: { data, error },
  wait = 'Loading…',
  kind = '',
}: {
  readonly of: Pick<Loaded<unknown>, 'data' | 'error'>;
  readonly wait?: string;
  readonly kind?: string;
}) {
  if (error !== undefined) return <ErrorMessage error={error} />;
  return data === undefined ? <p class={`muted ${kind}`}>{wait}</p> : null;
}

export function Note({ children }: Children) {
  return <p class="muted small">{children}</p>;
}

/** Moves the focus to the heading of a part when the focused element is removed. */
export function useKeptFocus(): {
  readonly ref: { current: HTMLElement | null };
  readonly onFocusIn: (event: FocusEvent) => void;
} {
  const ref = useRef<HTMLElement>(null);
  const last = useRef<EventTarget | null>(null);
  useLayoutEffect(() => {
    if (!(last.current instanceof Element) || last.current.isConnected) return;
    last.current = null;
    if (document.activeElement === document.body) ref.current?.querySelector<HTMLElement>('h2')?.focus();
  });
  return { ref, onFocusIn: ({ target }) => void (last.current = target) };
}

/** A section with its heading, which has the id, and controls next to it. */
export function Card({
  id,
  title,
  count,
  isBusy,
  beside,
  children,
}: Children & {
  readonly id: string;
  readonly title: ComponentChildren;
  readonly count?: number | undefined;
  /** Whether the content is of the previous request. */
  readonly isBusy?: boolean;
  readonly beside?: ComponentChildren;
}) {
  const heading = (
    <h2 id={id} tabIndex={-1}>
      {title}
      {count !== undefined && <span class="muted"> {formatCount(count)}</span>}
    </h2>
  );
  return (
    <section {...useKeptFocus()} class="card stack" aria-labelledby={id} aria-busy={isBusy}>
      {beside === undefined ? (
        heading
      ) : (
        <div class="spread">
          {heading}
          {beside}
        </div>
      )}
      {children}
    </section>
  );
}

export function EmptyCard({ title, children }: Children & { readonly title: string }) {
  return (
    <div class="card empty">
      <h2 tabIndex={-1}>{title}</h2>
      {children}
    </div>
  );
}

/** A column: its title, the cell of a row, and the classes of both. */
export type TableColumn<Row> = readonly [
  title: string,
  cell: (row: Row, index: number) => ComponentChildren,
  kind?: string,
];

/** A table that scrolls, also by keyboard. With the kind `as-cards`, each row is a card in a narrow window. */
export function Table<Row>({
  label,
  kind = '',
  tableKind,
  columns,
  rows,
  keyOf,
  kindOf,
}: {
  readonly label: string;
  /** Classes of the scrolling region and of the table. */
  readonly kind?: string;
  readonly tableKind?: string;
  readonly columns: readonly TableColumn<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row, index: number) => string | number;
  readonly kindOf?: (row: Row) => string | undefined;
}) {
  // The style sheet displays the cells as blocks, so that they lose their roles.
  const roleOf = (role: 'table' | 'rowgroup' | 'row' | 'cell'): typeof role | undefined =>
    kind.includes('as-cards') ? role : undefined;
  return (
    <div class={`scroll ${kind}`} tabIndex={0} role="region" aria-label={label}>
      <table class={tableKind} role={roleOf('table')}>
        <thead role={roleOf('rowgroup')}>
          <tr role={roleOf('row')}>
            {columns.map(([title, , columnKind], at) => (
              <th key={at} scope="col" class={columnKind}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role={roleOf('rowgroup')}>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)} class={kindOf?.(row)} role={roleOf('row')}>
              {columns.map(([title, cell, columnKind], at) => (
                <td key={at} class={columnKind} role={roleOf('cell')} data-label={title}>
                  {cell(row, index)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function ShareBar({ share }: { readonly share: number }) {
  return (
    <span class="share">
      <span class="share-bar" aria-hidden="true">
        <span style={{ width: `${Math.min(100, share * 100)}%` }} />
      </span>
      <span class="number">{formatShare(share)}</span>
    </span>
  );
}

/** Names and values as a list. */
export function DefinitionList({
  of,
}: {
  readonly of: readonly (readonly [name: string, value: ComponentChildren])[];
}) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div class="fact" key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Filters items by the text of a search field. */
export function useSearch<T>(label: string, items: readonly T[], textOf: (item: T) => string) {
  const [search, setSearch] = useState('');
  const wanted = search.toLowerCase();
  return {
    found: items.filter((item) => textOf(item).toLowerCase().includes(wanted)),
    field: <SearchField label={label} onSearch={setSearch} />,
  };
}

/** Rows per page of a list. */
export const pageSize = 50;

/** Keeps the search and page of a list. Returns them as arguments of the API, with their controls. */
export function usePagedList(label: string) {
  const [search, setSearch] = useState('');
  const [offset, setOffset] = useState(0);
  const onSearch = (text: string): void => {
    setSearch(text);
    setOffset(0);
  };
  return {
    search,
    callArguments: { search, offset: String(offset), limit: String(pageSize) },
    toStart: () => setOffset(0),
    field: <SearchField label={label} onSearch={onSearch} />,
    pager: (total = 0) => (total <= pageSize ? null : <Pager offset={offset} total={total} onMove={setOffset} />),
  };
}

interface PagerProps {
  readonly offset: number;
  readonly total: number;
  readonly onMove: (offset: number) => void;
}

function Pager({ offset, total, onMove }: PagerProps) {
  const last = Math.min(offset + pageSize, total);
  return (
    <nav class="row pager" aria-label="Pagination">
      <Button kind="small" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - pageSize))}>
        Previous
      </Button>
      <span class="muted small">
        {formatCount(offset + 1)} to {formatCount(last)} of {formatCount(total)}
      </span>
      <Button kind="small" disabled={last >= total} onClick={() => onMove(offset + pageSize)}>
        Next
      </Button>
    </nav>
  );
}

/** A part of a page with its path below `/console/`. */
export interface PageTab {
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
}

/** Creates a page with tabs; the first is the default. */
export function createTabs(title: string, parts: readonly [PageTab, ...PageTab[]]): ComponentType {
  return function PageOfParts() {
    const shown = parts.find((part) => part.path === path.value) ?? parts[0];
    const Part = shown.component;
    return (
      <>
        <PageHead title={title}>
          <nav class="tabs" aria-label={`Tabs of ${title}`}>
            {parts.map((part) => (
              <a key={part.path} href={hrefOf(part.path)} aria-current={part === shown ? 'page' : undefined}>
                {part.title}
              </a>
            ))}
          </nav>
        </PageHead>
        <Part />
      </>
    );
  };
}

export function PageHead({ title, children }: Children & { readonly title: string }) {
  return (
    <div class="page-head">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </div>
  );
}

/**
 * A dialog that is open while it is mounted. It opens before the page is painted, so that no typed character is lost.
 */
export function useModal(): { current: HTMLDialogElement | null } {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return dialog;
}
