/** A half-open span of Unix seconds: from `fromSeconds` (inclusive) up to `beforeSeconds` (exclusive); an absent bound is open. */
export interface SecondsSpan {
  readonly fromSeconds?: number;
  readonly beforeSeconds?: number;
}

/**
 * A valid export request: what job.json keeps and the worker runs. Days have become instants, aliases their event,
 * numbers their shortest decimal spelling; what is absent was not asked for.
 */
export interface ExportRequest {
  /** Name of the event, never an alias. */
  readonly event: string;
  /** Names of selectors, in the order of the columns, each once. */
  readonly selectors: readonly string[];
  readonly timezone: string;
  readonly eventTime: SecondsSpan;
  readonly availableAt: SecondsSpan;
  /**
   * First and last local date in the zone, `YYYY-MM-DD`: only where clocks that go back over midnight make the span of
   * those days hold moments of other days too.
   */
  readonly localDates?: { readonly from: string; readonly to: string };
  readonly idApp?: readonly string[];
  readonly SDKKey?: readonly string[];
  readonly idAccount?: readonly string[];
  readonly idProject?: readonly string[];
  readonly eventName?: readonly string[];
  /** The listed event names are the ones left out. */
  readonly eventNameInvert: boolean;
  /** Filters on values that no imported event has, as given. */
  readonly unknowable: Readonly<Record<string, readonly string[]>>;
}

/** An app as an export sees it. */
export interface ExportApp {
  readonly idApp: number;
  readonly sdkKey: string;
  readonly title: string;
  readonly platform: string;
  readonly idAccount: number;
  readonly idProject: number | undefined;
}

/** Whether an id is in a set; a filter that was not given lets everything pass. */
function passes(set: readonly string[] | undefined, id: number | undefined): boolean {
  return set === undefined || (id !== undefined && set.includes(String(id)));
}

/**
 * The apps whose rows a request may have: of the account's own, those that idApp or SDKKey names (one of the two is
 * enough), within idAccount and idProject. Apps of other accounts are no candidates, so foreign ids select nothing.
 */
export function selectApps(request: ExportRequest, accountApps: readonly ExportApp[]): ExportApp[] {
  const { idApp, SDKKey, idAccount, idProject } = request;
  const named = (app: ExportApp): boolean => {
    if (idApp === undefined && SDKKey === undefined) return true;
    return idApp?.includes(String(app.idApp)) === true || SDKKey?.includes(app.sdkKey) === true;
  };
  return accountApps.filter((app) => named(app) && passes(idAccount, app.idAccount) && passes(idProject, app.idProject));
}

/**
 * Whether imported events, which have none of these values, pass the filters on them: an empty value stands for
 * `0 unknown` of rooted and idAdMediator, and for nothing else.
 */
export function emptyValuesMatch(unknowable: ExportRequest['unknowable']): boolean {
  return Object.entries(unknowable).every(([name, values]) => (name === 'rooted' || name === 'idAdMediator') && values.includes('0'));
}
