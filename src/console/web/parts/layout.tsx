/** What a page is laid out in: messages, cards, tables, lists in parts, dialogs and tabs. */
import type { ComponentChildren, ComponentType } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { hrefOf, path } from '../frame/browser.ts';
import { Button, SearchField } from './controls.tsx';
import { formatCount, formatShare } from './format.ts';
import type { Loaded } from './load.ts';

interface Children {
  readonly children?: ComponentChildren;
}

/** Something that has to be said where it belongs; errors are read out at once. */
export function Message({ kind, children }: Children & { readonly kind: 'error' | 'warning' | 'info' }) {
  return (
    <div class={`message ${kind}`} role={kind === 'error' ? 'alert' : undefined}>
      {children}
    </div>
  );
}

/** A message of an error; nothing without one. */
export function ErrorMessage({ error }: { readonly error: Error | undefined }) {
  return error === undefined ? null : <Message kind="error">{error.message}</Message>;
}

/** What is said of an answer that is not there: why not, or that it is waited for. */
export function LoadState({
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

/** A text of less weight. */
export function Note({ children }: Children) {
  return <p class="muted small">{children}</p>;
}

/** Moves the focus to the heading of a part where what had it is removed, so that no key press goes nowhere. */
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

/** A part of a page with its heading, which has the id, and what stands beside it. */
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
  /** What is shown is of what was asked before. */
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

/** Instead of a list that is empty. */
export function EmptyCard({ title, children }: Children & { readonly title: string }) {
  return (
    <div class="card empty">
      <h2 tabIndex={-1}>{title}</h2>
      {children}
    </div>
  );
}

/** A column: its title, the cell of a row, and the classes of both. */
export type Column<Row> = readonly [title: string, cell: (row: Row, index: number) => ComponentChildren, kind?: string];

/** A table that scrolls by itself, and by the keyboard. */
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
  /** Classes of what scrolls, and of the table in it. */
  readonly kind?: string;
  readonly tableKind?: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row, index: number) => string | number;
  readonly kindOf?: (row: Row) => string | undefined;
}) {
  return (
    <div class={`scroll ${kind}`} tabIndex={0} role="region" aria-label={label}>
      <table class={tableKind}>
        <thead>
          <tr>
            {columns.map(([title, , columnKind], at) => (
              <th key={at} scope="col" class={columnKind}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)} class={kindOf?.(row)}>
              {columns.map(([, cell, columnKind], at) => (
                <td key={at} class={columnKind}>
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

/** A share from 0 to 1 as a bar beside its figure. */
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

/** Rows of a list that are shown at once. */
export const pageSize = 50;

/** Keeps which part of a list is asked for; gives it as arguments of the API, with what the reader changes it by. */
export function useListPart(label: string) {
  const [search, setSearch] = useState('');
  const [offset, setOffset] = useState(0);
  const onSearch = (text: string): void => {
    setSearch(text);
    setOffset(0);
  };
  return {
    search,
    given: { search, offset: String(offset), limit: String(pageSize) },
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
    <nav class="row pager" aria-label="Parts of the list">
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

/** A part of a page, with an address of its own: a path below `/console/`. */
export interface PagePart {
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
}

/** Creates a page of several parts, one of which is shown: the first, where the address names none. */
export function createParts(title: string, parts: readonly [PagePart, ...PagePart[]]): ComponentType {
  return function PageOfParts() {
    const shown = parts.find((part) => part.path === path.value) ?? parts[0];
    const Part = shown.component;
    return (
      <>
        <PageHead title={title}>
          <nav class="tabs" aria-label={`Parts of ${title}`}>
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

/** The heading of a page, and what stands beside it. */
export function PageHead({ title, children }: Children & { readonly title: string }) {
  return (
    <div class="page-head">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </div>
  );
}

/**
 * A dialog that is open for as long as it is there. It opens before the page is painted: what is typed at once goes into
 * it, not into what opened it, to which the focus goes back.
 */
export function useModal(): { current: HTMLDialogElement | null } {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    // By itself: as long as it is open, nothing else can have the focus.
    return () => element?.close();
  }, []);
  return dialog;
}
