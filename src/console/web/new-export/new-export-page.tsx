import { Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { hrefOf, navigate } from '../shell/browser.ts';
import { callApi, renderArguments, type CallArguments } from '../shell/client.ts';
import { session, type SignedIn } from '../shell/session.ts';
import { newestDays, useActivity } from '../components/activity.ts';
import { Button } from '../components/controls.tsx';
import { EmptyCard, LoadingState, MessageBox, PageHead } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';
import { ColumnsField } from './columns-field.tsx';
import { draft, loadDictionary, movePeriod, openDraft } from './draft.ts';
import type { Dictionary } from './draft.ts';
import { EventField, sumEvents } from './event-field.tsx';
import { FilesField } from './files-field.tsx';
import { FiltersField } from './filters-field.tsx';
import { EstimateView, PreviewView, SnippetsView } from './dry-run.tsx';
import { findDraftErrors, toArguments } from './export-arguments.ts';
import { PeriodField, usualDays } from './period-field.tsx';

interface SummaryProps {
  readonly callArguments: CallArguments;
  /** Those that choose rows and files. */
  readonly rowArguments: CallArguments;
  readonly isComplete: boolean;
  readonly onPreview: () => void;
}

function Summary({ callArguments, rowArguments, isComplete, onPreview }: SummaryProps) {
  const { isBusy, error, act } = useAction();

  async function order(): Promise<void> {
    const created = await callApi('/api/raw/v1/export/create.json', { method: 'POST', callArguments });
    navigate(`exports/${created.idRawExport}`);
  }

  const canCreate = isComplete && !isBusy;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || !canCreate) return;
      event.preventDefault();
      void act(order);
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  });

  return (
    <section class="card stack summary" aria-labelledby="summary-title">
      <h2 id="summary-title" tabIndex={-1}>
        Summary
      </h2>
      <EstimateView callArguments={isComplete ? rowArguments : undefined} />
      <Button
        kind="primary wide"
        aria-disabled={isBusy || !isComplete}
        onClick={() => canCreate && void act(order)}
        aria-keyshortcuts="Control+Enter"
      >
        {isBusy ? 'Creating…' : 'Create export'}
        <kbd aria-hidden="true">Ctrl + Enter</kbd>
      </Button>
      <Button kind="wide" aria-disabled={!isComplete} onClick={() => isComplete && onPreview()}>
        Show preview
      </Button>
      {error !== undefined && (
        <MessageBox kind="error">
          {error.message}
          {error.exports.length > 0 && ' In progress:'}
          {error.exports.map((id) => (
            <Fragment key={id}>
              {' '}
              <a href={hrefOf(`exports/${id}`)}>#{id}</a>
            </Fragment>
          ))}
          {(error.status === 0 || error.status >= 500) && (
            <>
              {' '}
              The export may have been created anyway: check <a href={hrefOf('exports')}>Exports</a> first.
            </>
          )}
        </MessageBox>
      )}
    </section>
  );
}

const parts = [
  ['event-title', 'Event'],
  ['period-title', 'Period'],
  ['columns-title', 'Columns'],
  ['filters-title', 'Filters'],
  ['files-title', 'Files'],
  ['summary-title', 'Summary'],
] as const;

/** Leads keyboard users to a part of the form; visible while it has the focus. */
function SkipLinks() {
  return (
    <nav class="skip-links" aria-label="Parts of the form">
      {parts.map(([id, title]) => (
        <Button key={id} kind="small" onClick={() => document.querySelector<HTMLElement>(`#${id}`)?.focus()}>
          {title}
        </Button>
      ))}
    </nav>
  );
}

function OrderForm({ dictionary }: { readonly dictionary: Dictionary }) {
  const [previewArguments, setPreviewArguments] = useState<CallArguments>();
  const { data: activity } = useActivity({ limit: '3' });
  openDraft(dictionary);
  const { value } = draft;
  const entry = dictionary.events.find(({ name }) => name === value?.event);
  const lastDate = entry && sumEvents(entry, activity)?.lastDate;
  useEffect(() => {
    if (value === undefined || lastDate === undefined || lastDate >= value.period.from) return;
    const { from, to } = newestDays(value.timezone, lastDate, usualDays);
    movePeriod(from, to);
  }, [lastDate]);
  if (value === undefined) return null;
  const problems = findDraftErrors(value);
  const callArguments = toArguments(value, dictionary);
  const rowArguments = { ...callArguments, name: undefined, deliverTo: undefined };
  const shared = { draft: value, dictionary, activity };
  return (
    <div class="order">
      <div class="stack">
        <SkipLinks />
        {activity?.events === 0 && (
          <MessageBox kind="info">
            No events yet.{' '}
            <a href={hrefOf(activity.apps[0] === undefined ? 'data' : `data/${activity.apps[0].idApp}`)}>
              Send the first event
            </a>
          </MessageBox>
        )}
        <EventField {...shared} />
        <PeriodField {...shared} lastDate={lastDate} problem={problems.period} />
        <ColumnsField {...shared} problem={problems.selectors} />
        <FiltersField key={value.event} {...shared} />
        <FilesField {...shared} />
      </div>
      <aside aria-label="Summary" class="stack">
        <Summary
          callArguments={callArguments}
          rowArguments={rowArguments}
          isComplete={Object.keys(problems).length === 0}
          onPreview={() => setPreviewArguments(rowArguments)}
        />
      </aside>
      <div class="stack below">
        {previewArguments !== undefined && (
          <PreviewView
            callArguments={previewArguments}
            isOld={renderArguments(previewArguments) !== renderArguments(rowArguments)}
          />
        )}
        <SnippetsView callArguments={callArguments} formats={dictionary.formats} />
      </div>
    </div>
  );
}

function NoExports({ isOperator }: Pick<SignedIn, 'isOperator'>) {
  return (
    <EmptyCard title="You don't have permission to create exports">
      <p>An operator can grant it.</p>
      <p class="row">
        <a class="button" href={hrefOf('exports')}>
          Exports
        </a>
        {isOperator && (
          <a class="button primary" href={hrefOf('operations')}>
            Operations
          </a>
        )}
      </p>
    </EmptyCard>
  );
}

function LoadedForm() {
  const loaded = useLoaded(() => loadDictionary(), []);
  return (
    <>
      <LoadingState of={loaded} />
      {loaded.data !== undefined && <OrderForm dictionary={loaded.data} />}
    </>
  );
}

export function NewExportPage() {
  const of = session.value;
  if (typeof of !== 'object') return null;
  return (
    <>
      <PageHead title="New export" />
      {of.canExport ? <LoadedForm /> : <NoExports isOperator={of.isOperator} />}
    </>
  );
}
