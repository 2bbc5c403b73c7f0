/** Why a row of a file cannot be loaded: a closed list, with what each means. */
export const badReasons = {
  bad_line: 'the line is no row: not UTF-8, an unclosed quote, or the wrong number of cells',
  bad_json: 'the line is no JSON object',
  missing: 'a required field has no value',
  bad_type: 'the value is not of the type of its field',
  inexact: 'the number has more digits than its field keeps',
  out_of_range: 'the number is below the minimum or above the maximum',
  not_allowed: 'the value is none of those that are allowed',
  bad_length: 'the text is too short or too long',
  bad_pattern: 'the text is not in the form of its field',
  bad_list: 'the value is no list of texts, or params.name and params.value do not belong together',
  conflict: 'two fields that are the same thing have different values',
  unknown_app: 'no registered app has this idApp or SDKKey',
  foreign_field: 'the field is one of other datasets',
} as const satisfies Readonly<Record<string, string>>;

export type BadReason = keyof typeof badReasons;

/** Narrows a text to a reason. */
export function isBadReason(text: string): text is BadReason {
  return Object.hasOwn(badReasons, text);
}

/** A row that cannot be loaded. */
export interface BadRow {
  /** Line of the file, from 1 (CSV: where the row begins; its header is line 1); in Parquet the number of the row, from 1. */
  readonly line: number;
  readonly reason: BadReason;
  /** The field at fault, by its name in the schema; absent where the row as a whole is. */
  readonly field?: string;
}

/** A condition on a row, SQL that is true where the row is bad and never an error; of several the first counts. */
export interface Check {
  readonly reason: BadReason;
  readonly field?: string;
  readonly sql: string;
  /** It only says more of why: a later check fails too, so that whether a row is bad can be known without it. */
  readonly isDetail?: true;
}
