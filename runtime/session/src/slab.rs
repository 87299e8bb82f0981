//! A table of values whose keys never match a later value.
//!
//! A key carries the generation of its place: once the value is removed, the key is stale, even if
//! the place is reused.

/// The place of a value and its generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct SlabPlace<T> {
    generation: u32,
    value: Option<T>,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<SlabPlace<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.value = Some(value);
            return Key {
                index,
                generation: place.generation,
            };
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 live values");
        self.places.push(SlabPlace {
            generation: 0,
            value: Some(value),
        });
        Key {
            index,
            generation: 0,
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        (place.generation == key.generation).then_some(place.value.as_ref())?
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        (place.generation == key.generation).then_some(place.value.as_mut())?
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// Bytes of all places.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.free)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.value.as_ref())
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let places = (0..).zip(&self.places);
        places
            .filter(|(_, place)| place.value.is_some())
            .map(|(index, place)| Key {
                index,
                generation: place.generation,
            })
            .collect()
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Some(value) = place.value.take() {
                place.generation = place.generation.wrapping_add(1);
                self.free.push(index as u32);
                all.push(value);
            }
        }
        all
    }
}
