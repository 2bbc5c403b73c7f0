import { callApi } from '../shell/client.ts';
import { Input, Select } from './controls.tsx';
import { useLoaded } from './load.ts';

/** Loads the destinations of the account. */
export function useDestinations() {
  return useLoaded((signal) => callApi('/api/destination/v1/list.json', { signal }), []);
}

/** Labels of an export or a schedule; '' for none. */
export interface Labels {
  readonly name: string;
  /** Id of a destination. */
  readonly deliverTo: string;
}

/** Returns the arguments of labels. */
export function labelArguments({ name, deliverTo }: Labels): Partial<Labels> {
  const text = name.trim();
  return { ...(text === '' ? {} : { name: text }), ...(deliverTo === '' ? {} : { deliverTo }) };
}

/** A choice of a destination, or none; nothing without destinations. */
function DestinationSelect({ deliverTo, onChange }: Pick<Labels, 'deliverTo'> & Pick<FieldsProps, 'onChange'>) {
  const { data } = useDestinations();
  if (data === undefined) return null;
  const choices = data.destinations.map(({ idDestination, name }) => [idDestination, name] as const);
  const isRemoved = deliverTo !== '' && !choices.some(([id]) => id === deliverTo);
  if (choices.length === 0 && !isRemoved) return null;
  const removed = isRemoved ? [[deliverTo, `${deliverTo} (removed)`] as const] : [];
  return (
    <Select
      label="Deliver to"
      choices={[['', 'Nowhere'], ...choices, ...removed]}
      value={deliverTo}
      onChange={(event) => onChange({ deliverTo: event.currentTarget.value })}
    />
  );
}

interface FieldsProps {
  readonly labels: Labels;
  readonly onChange: (change: Partial<Labels>) => void;
}

/** Fields for a name and a destination. */
export function LabelFields({ labels: { name, deliverTo }, onChange }: FieldsProps) {
  return (
    <div class="columns-2">
      <Input
        label="Name (optional)"
        maxLength={100}
        value={name}
        onInput={(event) => onChange({ name: event.currentTarget.value })}
      />
      <DestinationSelect deliverTo={deliverTo} onChange={onChange} />
    </div>
  );
}
