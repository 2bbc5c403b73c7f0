import type { Activity } from '../components/activity.ts';
import { Field, Input, Select } from '../components/controls.tsx';
import {
  changeDraft,
  comparisons,
  paramComparisons,
  type Draft,
  type ParamComparison,
  type ParamDraft,
} from './draft.ts';
import { useKnownParameters, type KnownName, type KnownParameter } from './known-values.ts';
import { RemoveButton, Suggestions } from './value-fields.tsx';

/** Comparisons in the order of the list. `paramsSet` has two entries. */
const choices: readonly (readonly [value: string, title: string])[] = [
  ...comparisons.map((each) => [each, paramComparisons[each]] as const),
  ['unset', 'is not set'],
];

interface ParamProps {
  readonly param: ParamDraft;
  readonly known: readonly KnownParameter[];
  readonly onChange: (changed: Partial<ParamDraft>) => void;
}

/** The values of a filter: several texts, one number, or none. */
function ParamValues({ param: { name, comparison = 'params', values }, known, onChange }: ParamProps) {
  if (comparison === 'paramsSet') return null;
  if (comparison === 'paramsGreater' || comparison === 'paramsLess')
    return (
      <Input
        label="Number"
        type="number"
        step="any"
        value={values[0] ?? ''}
        onInput={(event) => onChange({ values: [event.currentTarget.value] })}
      />
    );
  const examples = known.find((parameter) => parameter.name === name)?.examples ?? [];
  const filled = values.filter((value) => value !== '');
  return (
    <div class="stack tight">
      <Field label="Values, one per line">
        <textarea
          rows={1}
          value={values.join('\n')}
          onInput={(event) => onChange({ values: event.currentTarget.value.split('\n') })}
        />
      </Field>
      <Suggestions
        of={examples.filter((example) => example !== '').map((value) => ({ value }))}
        values={filled}
        onToggle={(value) =>
          onChange({ values: filled.includes(value) ? filled.filter((each) => each !== value) : [...filled, value] })
        }
      />
    </div>
  );
}

function ParamFilter(props: ParamProps) {
  const { param, known, onChange } = props;
  const { name, comparison = 'params', values } = param;
  const isUnset = comparison === 'paramsSet' && values[0] === '0';

  function choose(chosen: string): void {
    if (chosen === 'unset') return onChange({ comparison: 'paramsSet', values: ['0'] });
    const next: ParamComparison = comparisons.find((each) => each === chosen) ?? 'params';
    const wasSet = comparison === 'paramsSet';
    onChange({ comparison: next, values: next === 'paramsSet' ? ['1'] : wasSet ? [] : values });
  }

  return (
    <>
      <div class="columns-3">
        <Input
          label="Parameter"
          list="known-parameters"
          autocomplete="off"
          value={name}
          placeholder={known[0]?.name ?? 'level'}
          onInput={(event) => onChange({ name: event.currentTarget.value })}
        />
        <Select
          label="Comparison"
          choices={choices}
          value={isUnset ? 'unset' : comparison}
          onChange={(event) => choose(event.currentTarget.value)}
        />
        <ParamValues {...props} />
      </div>
      {name === '' && (
        <Suggestions
          of={known.map((parameter) => ({ value: parameter.name, note: parameter.type }))}
          values={[]}
          onToggle={(value) => onChange({ name: value })}
        />
      )}
    </>
  );
}

interface ParamFiltersProps {
  readonly draft: Draft;
  readonly activity: Activity | undefined;
  /** Known custom events, most frequent first. */
  readonly names: readonly KnownName[];
}

/** Edits the filters on parameters, with names and values of the catalogue. */
export function ParamFilters({ draft, activity, names }: ParamFiltersProps) {
  const { params } = draft;
  const known = useKnownParameters(draft, activity, names);
  const change = (place: number, changed: Partial<ParamDraft>): void =>
    changeDraft({ params: params.map((param, index) => (index === place ? { ...param, ...changed } : param)) });
  return (
    <>
      <datalist id="known-parameters">
        {known.map(({ name, type }) => (
          <option key={name} value={name} label={`${name}: ${type}`} />
        ))}
      </datalist>
      {params.map((param, place) => (
        // The rows have no unique names while they are edited.
        <fieldset class="filter" key={place}>
          <legend class="hidden">Filter on a parameter</legend>
          <ParamFilter param={param} known={known} onChange={(changed) => change(place, changed)} />
          <RemoveButton
            what={`the filter on ${param.name || 'a parameter'}`}
            onClick={() => changeDraft({ params: params.filter((_, index) => index !== place) })}
          />
        </fieldset>
      ))}
    </>
  );
}
