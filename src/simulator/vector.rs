//! Arithmetic with vectors: east, north, up; metres.

/// x, y and z, metres unless it is a direction.
pub type Vector = [f32; 3];

/// Scalar product.
pub fn dot(a: Vector, b: Vector) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Difference.
pub fn minus(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|n| a[n] - b[n])
}

/// The direction, of length 1; `v` must not be zero.
pub fn unit(v: Vector) -> Vector {
    let length = dot(v, v).sqrt();
    v.map(|n| n / length)
}
